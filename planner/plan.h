// From a model, a batch and a cluster to a ranked list of recipes (design planner.md). Torch-free.
//
// Every candidate of the space ends in exactly one count: pruned by a named rule, bounded out (its closed-form memory bound
// already exceeds the device), captured, failed, or not reached before the budget ended. Captured ones that fit are ranked by
// simulated step time; what does not fit is kept with its reason.
#pragma once

#include <functional>

#include "absl/status/statusor.h"
#include "planner/estimator.h"
#include "proto/legoai/v1/plan.pb.h"

namespace legoai::planner {

struct PlanProgress {
  int64_t space = 0;             // candidates
  int64_t to_capture = 0;        // of them, that are legal and not bounded out
  int64_t captured = 0;          // failed ones included
  double best_step_seconds = 0;  // 0: none fits so far
  double elapsed_seconds = 0;
};

// `progress` is called after the enumeration and after each capture; `cancel` is asked before each; both may be empty. Errors:
// InvalidArgument for a request or constraint that cannot be, Cancelled. That nothing fits is no error: `ranked` is empty and
// `rejected` begins with the closest to fitting.
absl::StatusOr<v1::PlanResult> Plan(const v1::PlanRequest& request, Estimator& estimator,
                                    const std::function<void(const PlanProgress&)>& progress = {},
                                    const std::function<bool()>& cancel = {});

}  // namespace legoai::planner
