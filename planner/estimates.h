// The planner's interface to simulation: several estimates run at a time and return in any order. The implementation uses
// lego-sim processes (lego_sim_pool.h), so the planner links no torch and survives a crash of a capture. Not thread-safe.
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
  // How many estimates may run at once.
  virtual int64_t Slots() const = 0;
  // Starts in the background what the first Start() would wait for, without waiting; Start() reports what fails.
  virtual void Prepare() {}
  // The caller chooses `request.id` to identify the answer. At most Slots() may be running.
  virtual absl::Status Start(const v1::SimRequest& request) = 0;
  // The next answer; nothing if none came within `timeout` or a signal came first. A failed estimate is an answer with an error.
  // An answer with `progress` is not final: more follow with the same id.
  virtual absl::StatusOr<std::optional<v1::SimResponse>> Wait(absl::Duration timeout) = 0;
  // Aborts all running estimates at once; they give no answers.
  virtual void StopAll() = 0;
};

// Estimates from an otherwise idle Estimator. Thread-safety: as the estimator.

// Blocks. `cancel` is polled; `progress` is called with the simulation's progress; both may be empty. Errors: Cancelled; those of
// the simulation, FieldViolation kept.
absl::StatusOr<v1::Estimate> EstimateOne(const v1::SimRequest& request, Estimator& estimator,
                                         const std::function<bool()>& cancel = {},
                                         const std::function<void(const v1::SimProgress&)>& progress = {});

// The estimates of all requests, in order, run as many at a time as the estimator has slots; a failed one is an error at its
// position. `done` is called after each with the number completed. Sets Request.id. Errors: Cancelled, those of the estimator.
absl::StatusOr<std::vector<absl::StatusOr<v1::Estimate>>> EstimateAll(std::vector<v1::SimRequest> requests, Estimator& estimator,
                                                                      const std::function<bool()>& cancel = {},
                                                                      const std::function<void(int64_t)>& done = {});

}  // namespace legoai::planner
