// Pipeline schedules: the order in which each rank runs the forward and backward passes of its stage, as plain data (GPipe: Huang
// et al. 2019; 1F1B: Narayanan et al. 2021). Torch-free, pure functions.
//
// Stage s runs on rank s of the group "pp". GPipe runs all forwards, then all backwards, and keeps every microbatch's
// activations. 1F1B (Narayanan et al. 2019) starts with stages - 1 - s forwards, then alternates one forward and one backward,
// so that stage s never keeps more than stages - s microbatches.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/legoai/v1/recipe.pb.h"

namespace legoai::parallel {

struct Action {
  enum class Kind : uint8_t { kForward, kBackward };  // kBackward: gradients of inputs and weights
  Kind kind = Kind::kForward;
  int32_t stage = 0;
  int32_t microbatch = 0;
  bool operator==(const Action&) const = default;
};

// What each rank does, in order.
using Schedule = std::vector<std::vector<Action>>;

// With one stage every schedule is F0 B0 F1 B1 ...: gradient accumulation.
// Errors: InvalidArgument for a schedule that is not known or counts below 1.
absl::StatusOr<Schedule> MakeSchedule(v1::PipelineSchedule kind, int64_t stages, int64_t microbatches);

// F0 F1 ... on every rank: evaluation.
absl::StatusOr<Schedule> MakeForwardSchedule(int64_t stages, int64_t microbatches);

// Holds for every training schedule: each rank runs each microbatch of its stage forward once and backward once, in microbatch
// order of either kind, and the dependencies across ranks have no cycle. FailedPrecondition says what is wrong, and where each
// rank stands if they block each other.
absl::Status CheckSchedule(const Schedule& schedule, int64_t microbatches);

// "F0 F1 B0 B1"
std::string Print(const std::vector<Action>& actions);

}  // namespace legoai::parallel
