#include "worker/launch/gang_rank.h"

#include "absl/strings/str_cat.h"

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

void GangRank::Fail(v1::Blame new_blame, const absl::Status& status) {
  if (new_blame <= blame) return;
  blame = new_blame;
  reason_ = std::string(status.message());
  failure = absl::Status(status.code(), absl::StrCat(Name(), ": ", status.message()));
  status.ForEachPayload([this](absl::string_view url, const absl::Cord& payload) { failure.SetPayload(url, payload); });
  if (failed_as == 0) failed_as = ++*failures_;
}

v1::RankCondition GangRank::Condition(absl::Duration now) const {
  v1::RankCondition condition;
  condition.set_fault(FaultText(blame));
  condition.set_text(reason_);
  if (!ended) condition.set_process_state(process_state);
  condition.set_silent_seconds(absl::ToDoubleSeconds(now - last_heard));
  condition.set_phase(last_progress.phase());
  condition.set_step(last_progress.step());
  return condition;
}

std::string GangRank::Name() const {
  if (last_progress.phase().empty()) return absl::StrCat("rank ", rank_);
  return absl::StrCat("rank ", rank_, " (", last_progress.phase(), ", step ", last_progress.step(), ")");
}

}  // namespace legoai::launch
