#include "server/store/telemetry_rules.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "server/store/store.h"

namespace legoai::store {

v1::StepMetrics CurveOf(const v1::StepMetrics& metrics) {
  v1::StepMetrics curve = metrics;
  if (curve.ranks_size() > 1) curve.mutable_ranks()->DeleteSubrange(1, curve.ranks_size() - 1);
  for (v1::RankMetrics& row : *curve.mutable_ranks()) row.clear_collectives();
  return curve;
}

void CutStretches(std::vector<Stretch>* stretches) {
  for (size_t i = stretches->size(); i-- > 1;) {
    (*stretches)[i - 1].until_step = std::min((*stretches)[i].first_step, (*stretches)[i].until_step);
  }
}

void SayRemoved(int64_t last, v1::LogLine* line) {
  line->set_sequence(last);
  line->clear_rank();
  line->set_level("info");
  line->set_text(absl::StrCat("the first ", last, " lines were removed: of a job's log the latest ", kLogLines, " are kept"));
}

}  // namespace legoai::store
