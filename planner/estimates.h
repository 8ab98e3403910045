// What the planner knows of simulation: estimates are started and come back, several at a time, in any order. Behind it are
// lego-sim processes (lego_sim_pool.h), so that the planner links no torch and a crash of a capture stays out of it. Not
// thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/legoai/v1/estimate.pb.h"
#include "proto/legoai/v1/sim.pb.h"

namespace legoai::planner {

class Estimator {
 public:
  virtual ~Estimator() = default;
  // How many estimates may be under way at once.
  virtual int64_t Slots() const = 0;
  // `request.id` is the caller's, to know the answer by. At most Slots() may be under way.
  virtual absl::Status Start(const v1::SimRequest& request) = 0;
  // The next answer; nothing if none came within `timeout`, or if a signal came first. An estimate that failed is an answer with
  // an error. One with `progress` is no end: more follows with the same id.
  virtual absl::StatusOr<std::optional<v1::SimResponse>> Wait(absl::Duration timeout) = 0;
  // Ends what is under way at once; no answer comes for it.
  virtual void StopAll() = 0;
};

// Estimates from an Estimator that has nothing else under way. Thread-safety: as the estimator.

// Blocks. `cancel` is polled; `progress` is called as the simulation tells it; both may be empty. Errors: Cancelled;
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
