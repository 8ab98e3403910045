// What the handlers of users' calls need of the living part of the service: workers as they stand, and planning. Implemented by
// controller.h; gRPC-free. Thread-safe.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/legoai/v1/control_plane.pb.h"
#include "proto/legoai/v1/job.pb.h"
#include "proto/legoai/v1/worker.pb.h"

namespace legoai::server {

class Fleet {
 public:
  virtual ~Fleet() = default;

  // By name, with state, connection and use of this moment.
  virtual std::vector<v1::Worker> Workers() const = 0;
  // Durable when it answers. Errors: NotFound.
  virtual absl::StatusOr<v1::Worker> Drain(const std::string& worker, bool undo) = 0;

  // A job was submitted, cancelled, retried, and that is durable: the controller looks at it at once. Returns at once.
  virtual void JobChanged(const std::string& job) = 0;

  // Says why `job`, as it was read from the store, waits, and its place in the queue, as of now: neither is stored. False, and
  // nothing is done, where nothing is known of that.
  virtual bool DescribeWait(v1::Job* job) const = 0;

  // Both run in lego-sim processes that jobs share; they wait for their turn. Block. `cancel` is polled.
  // Errors: ResourceExhausted where too many wait; Cancelled; those of planner::Plan.
  virtual absl::StatusOr<v1::PlanResult> Plan(const v1::PlanRequest& request,
                                              const std::function<void(const v1::PlanningProgress&)>& progress,
                                              const std::function<bool()>& cancel) = 0;
  virtual absl::StatusOr<v1::Estimate> Simulate(const v1::SimRequest& request, const std::function<bool()>& cancel) = 0;
};

}  // namespace legoai::server
