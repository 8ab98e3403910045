// The planner of the service: plans and simulates for jobs and users' calls, several at a time, on the same lego-sim processes
// (simulators.h), which the projects of the jobs and the calls use by turns. Seconds of plans, their budgets among them,
// are those in which they do not just wait for processes that others have. Thread-safe.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "core/process/mutex.h"
#include "planner/estimates.h"
#include "planner/plan.h"
#include "proto/legoai/v1/plan.pb.h"
#include "proto/legoai/v1/sim.pb.h"
#include "server/fleet/simulators.h"

namespace legoai::server {

class Planning {
 public:
  // As Simulators takes them.
  Planning(std::function<std::unique_ptr<planner::Estimator>()> make, int64_t processes);
  ~Planning();  // cancels running work, answers waiting calls with Cancelled

  using Progress = std::function<void(const planner::PlanProgress&)>;
  using Cancel = std::function<bool()>;

  // Block until done; at most kMostCalls of users are under way. Errors: ResourceExhausted beyond that; Cancelled; those of
  // planner::Plan.
  absl::StatusOr<v1::PlanResult> Plan(const v1::PlanRequest& request, const Progress& progress, const Cancel& cancel);
  absl::StatusOr<v1::Estimate> Simulate(const v1::SimRequest& request, const Cancel& cancel);

  // For a job of `project`. Returns at once; `done` runs on a thread of its own. At most kMostJobs plans are made at a time; more
  // wait.
  void PlanLater(const std::string& project, const v1::PlanRequest& request, const Progress& progress, const Cancel& cancel,
                 std::function<void(absl::StatusOr<v1::PlanResult>)> done);

  static constexpr int64_t kMostCalls = 32;
  static constexpr int64_t kMostJobs = 8;

 private:
  class Call;

  void Work();
  bool ending() const;

  Simulators simulators_;
  mutable Mutex mutex_;
  Condition changed_;
  std::deque<std::function<void()>> tasks_ ABSL_GUARDED_BY(mutex_);  // of jobs
  int64_t calls_ ABSL_GUARDED_BY(mutex_) = 0;                        // under way
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;  // last: they use the rest
};

}  // namespace legoai::server
