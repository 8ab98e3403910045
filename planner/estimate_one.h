// One estimate from an Estimator that has nothing else under way. Torch-free. Thread-safety: as the estimator.
#pragma once

#include <functional>

#include "absl/status/statusor.h"
#include "planner/estimator.h"
#include "proto/legoai/v1/estimate.pb.h"
#include "proto/legoai/v1/sim.pb.h"

namespace legoai::planner {

// Blocks. `cancel` is asked now and then, `progress` called as the simulation tells it; both may be empty. Errors: Cancelled;
// what the simulation says, its FieldViolation kept.
absl::StatusOr<v1::Estimate> EstimateOne(const v1::SimRequest& request, Estimator& estimator,
                                         const std::function<bool()>& cancel = {},
                                         const std::function<void(const v1::SimProgress&)>& progress = {});

}  // namespace legoai::planner
