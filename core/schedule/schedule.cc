#include "core/schedule/schedule.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proto/status.h"

namespace legoai::parallel {
namespace {

std::string Name(const Action& action) {
  return absl::StrCat(action.kind == Action::Kind::kForward ? "F" : "B", action.microbatch);
}

// `ahead` forwards run before the first backward, after which forwards and backwards alternate until forwards run out.
std::vector<Action> OneStage(int64_t stage, int64_t microbatches, int64_t ahead) {
  std::vector<Action> actions;
  actions.reserve(2 * microbatches);
  const auto add = [&](Action::Kind kind, int64_t microbatch) {
    actions.push_back({kind, static_cast<int32_t>(stage), static_cast<int32_t>(microbatch)});
  };
  for (int64_t m = 0; m < std::min(ahead, microbatches); ++m) add(Action::Kind::kForward, m);
  for (int64_t m = 0; m < microbatches; ++m) {
    if (m + ahead < microbatches) add(Action::Kind::kForward, m + ahead);
    add(Action::Kind::kBackward, m);
  }
  return actions;
}

absl::Status CheckOneRank(const std::vector<Action>& actions, int64_t rank, int64_t microbatches) {
  int64_t forwards = 0, backwards = 0;
  for (const Action& action : actions) {
    const bool forward = action.kind == Action::Kind::kForward;
    int64_t& next = forward ? forwards : backwards;
    if (action.stage != rank || action.microbatch != next) {
      return absl::FailedPreconditionError(absl::StrCat("pipeline rank ", rank, ": ", Name(action), " of stage ", action.stage,
                                                        " where ", forward ? "F" : "B", next, " of stage ", rank, " is due"));
    }
    if (!forward && next >= forwards) {
      return absl::FailedPreconditionError(absl::StrCat("pipeline rank ", rank, ": ", Name(action), " before its forward"));
    }
    ++next;
  }
  if (forwards == microbatches && backwards == microbatches) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("pipeline rank ", rank, ": ", forwards, " forwards and ", backwards,
                                                    " backwards for ", microbatches, " microbatches"));
}

absl::Status CheckCounts(int64_t stages, int64_t microbatches) {
  if (stages >= 1 && microbatches >= 1) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("a pipeline needs at least one stage and one microbatch, not ", stages, " and ", microbatches));
}

// Runs the ranks against each other. Counts are enough because both kinds run in microbatch order.
absl::Status CheckProgress(const Schedule& schedule) {
  const int64_t ranks = schedule.size();
  std::vector<size_t> position(ranks, 0);
  std::vector<int64_t> forwards(ranks, 0), backwards(ranks, 0);
  const auto ready = [&](int64_t rank, const Action& action) {
    if (action.kind == Action::Kind::kForward) return rank == 0 || action.microbatch < forwards[rank - 1];
    return rank + 1 == ranks || action.microbatch < backwards[rank + 1];
  };
  for (bool moved = true; moved;) {
    moved = false;
    for (int64_t rank = 0; rank < ranks; ++rank) {
      while (position[rank] < schedule[rank].size() && ready(rank, schedule[rank][position[rank]])) {
        const Action& action = schedule[rank][position[rank]++];
        ++(action.kind == Action::Kind::kForward ? forwards : backwards)[rank];
        moved = true;
      }
    }
  }
  std::string blocked;
  for (int64_t rank = 0; rank < ranks; ++rank) {
    if (position[rank] == schedule[rank].size()) continue;
    absl::StrAppend(&blocked, blocked.empty() ? "" : ", ", "rank ", rank, " at ", Name(schedule[rank][position[rank]]));
  }
  if (blocked.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("pipeline ranks wait for each other: ", blocked));
}

}  // namespace

absl::StatusOr<Schedule> MakeSchedule(v1::PipelineSchedule kind, int64_t stages, int64_t microbatches) {
  RETURN_IF_ERROR(CheckCounts(stages, microbatches));
  if (kind != v1::GPIPE && kind != v1::ONE_F_ONE_B) {
    return absl::InvalidArgumentError(absl::StrCat("unknown pipeline schedule ", static_cast<int>(kind)));
  }
  Schedule schedule;
  for (int64_t stage = 0; stage < stages; ++stage) {
    const bool all_forwards_first = kind == v1::GPIPE && stages > 1;
    schedule.push_back(OneStage(stage, microbatches, all_forwards_first ? microbatches : stages - 1 - stage));
  }
  return schedule;
}

absl::StatusOr<Schedule> MakeForwardSchedule(int64_t stages, int64_t microbatches) {
  RETURN_IF_ERROR(CheckCounts(stages, microbatches));
  Schedule schedule(stages);
  for (int64_t stage = 0; stage < stages; ++stage) {
    for (int64_t m = 0; m < microbatches; ++m) {
      schedule[stage].push_back({Action::Kind::kForward, static_cast<int32_t>(stage), static_cast<int32_t>(m)});
    }
  }
  return schedule;
}

absl::Status CheckSchedule(const Schedule& schedule, int64_t microbatches) {
  for (size_t rank = 0; rank < schedule.size(); ++rank) {
    RETURN_IF_ERROR(CheckOneRank(schedule[rank], rank, microbatches));
  }
  return CheckProgress(schedule);
}

std::string Print(const std::vector<Action>& actions) {
  return absl::StrJoin(actions, " ", [](std::string* out, const Action& action) { absl::StrAppend(out, Name(action)); });
}

}  // namespace legoai::parallel
