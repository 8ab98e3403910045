// What handlers of users' calls need from the active part of the service: current workers, and planning. Implemented by
// controller.h; gRPC-free. Thread-safe.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/legoai/v1/control_plane.pb.h"
#include "proto/legoai/v1/job.pb.h"
#include "proto/legoai/v1/worker.pb.h"

namespace legoai::server {

// Who leads of several servers over one store, as the one knows that is asked.
struct Leadership {
  bool leads = true;
  std::string address = {};                 // of this server's gRPC, as others reach it
  std::optional<v1::Leader> leader = {};    // this server included
};

class Fleet {
 public:
  virtual ~Fleet() = default;

  // One server leads by itself.
  virtual Leadership Leading() const { return {}; }

  // By name, with current state, connection and use.
  virtual std::vector<v1::Worker> Workers() const = 0;
  // By name, as they are stored, until `visit` returns false. It must neither block nor call the fleet.
  virtual void VisitWorkers(absl::FunctionRef<bool(const v1::Worker& facts, bool connected)> visit) const = 0;
  // Durable when it returns; jobs are moved afterwards. Errors: NotFound; those of StopGrace (server/jobs/stop.h).
  virtual absl::StatusOr<v1::Worker> Drain(const v1::DrainWorkerRequest& request) = 0;

  // Asks its agent to check its machine, and does not wait for it. Returns the worker as it was before. Errors: NotFound;
  // FailedPrecondition: it is not connected.
  virtual absl::StatusOr<v1::Worker> CheckWorker(const v1::CheckWorkerRequest& request) = 0;

  // A job was durably submitted, cancelled or retried: wakes the controller. Returns at once.
  virtual void JobChanged(const std::string& job) = 0;

  // Sets why `job`, as read from the store, currently waits, and its position in the queue; neither is stored. False, and nothing
  // is done, if that is unknown.
  virtual bool DescribeWait(v1::Job* job) const = 0;

  // Both use lego-sim processes shared with jobs, wait for their turn, and block. `cancel` is polled. Errors: ResourceExhausted
  // if too many wait; Cancelled; those of planner::Plan.
  virtual absl::StatusOr<v1::PlanResult> Plan(const v1::PlanRequest& request,
                                              const std::function<void(const v1::PlanningProgress&)>& progress,
                                              const std::function<bool()>& cancel) = 0;
  virtual absl::StatusOr<v1::Estimate> Simulate(const v1::SimRequest& request, const std::function<bool()>& cancel) = 0;
};

}  // namespace legoai::server
