// Estimates from an Estimator that has nothing else under way. Torch-free. Thread-safety: as the estimator.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

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

// The estimates of all requests, in their order, as many at a time as the estimator has slots; one that failed is an error in
// its place. `done` is told how many have ended, after each. Request.id is set here. Errors: Cancelled, those of the estimator.
absl::StatusOr<std::vector<absl::StatusOr<v1::Estimate>>> EstimateAll(std::vector<v1::SimRequest> requests, Estimator& estimator,
                                                                      const std::function<bool()>& cancel = {},
                                                                      const std::function<void(int64_t)>& done = {});

}  // namespace legoai::planner
