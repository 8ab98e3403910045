#include "worker/launch/gang_rank.h"

#include "absl/strings/str_cat.h"
#include "proto/errors.h"

namespace legoai::launch {
namespace {

// As in flight_record.proto.
const char* FaultText(v1::Blame blame) {
  switch (blame) {
    case v1::BLAME_CONSEQUENCE: return "consequence";
    case v1::BLAME_HUNG: return "hangs";
    case v1::BLAME_UNRESPONSIVE: return "unresponsive";
    case v1::BLAME_CAUSE: return "failed";
    default: return "none";
  }
}

}  // namespace

void Failure::Note(v1::Blame new_blame, const absl::Status& why, const std::string& name, int64_t* failures) {
  if (new_blame <= blame) return;
  blame = new_blame;
  reason = std::string(why.message());
  status = Annotate(why, name);
  if (failed_as == 0) failed_as = ++*failures;
}

bool Failure::IsWorseThan(const Failure& other) const {
  return blame != other.blame ? blame > other.blame : failed_as < other.failed_as;
}

void GangRank::Fail(v1::Blame blame, const absl::Status& status) { failure.Note(blame, status, Name(), failures_); }

v1::RankCondition GangRank::Condition(absl::Duration now) const {
  v1::RankCondition condition;
  condition.set_fault(FaultText(failure.blame));
  condition.set_text(failure.reason);
  if (!ended) condition.set_process_state(process_state);
  condition.set_silent_seconds(absl::ToDoubleSeconds(now - last_heard));
  condition.set_phase(last_progress.phase());
  condition.set_step(last_progress.step());
  return condition;
}

std::string GangRank::Name() const {
  const std::string name = absl::StrCat("rank ", rank_, host_.empty() ? "" : " of ", host_);
  if (last_progress.phase().empty()) return name;
  return absl::StrCat(name, " (", last_progress.phase(), ", step ", last_progress.step(), ")");
}

}  // namespace legoai::launch
