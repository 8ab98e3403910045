// The planner of the service: one thread that plans and simulates for jobs and for users' calls, one after the other, with the
// same lego-sim processes. One at a time, as each takes all of the processes. Thread-safe.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <thread>

#include "absl/status/statusor.h"
#include "core/process/mutex.h"
#include "planner/estimator.h"
#include "planner/plan.h"
#include "proto/legoai/v1/plan.pb.h"
#include "proto/legoai/v1/sim.pb.h"

namespace legoai::server {

class Planning {
 public:
  // `make` is called on the planning thread, before the first use: children die with the thread that spawned them.
  explicit Planning(std::function<std::unique_ptr<planner::Estimator>()> make);
  ~Planning();  // what is under way is cancelled, what waits is answered with Cancelled

  using Progress = std::function<void(const planner::PlanProgress&)>;
  using Cancel = std::function<bool()>;

  // Block for their turn and their work. Errors: ResourceExhausted where more than kMostWaiting wait; Cancelled; planner::Plan's.
  absl::StatusOr<v1::PlanResult> Plan(const v1::PlanRequest& request, const Progress& progress, const Cancel& cancel);
  absl::StatusOr<v1::Estimate> Simulate(const v1::SimRequest& request, const Cancel& cancel);

  // Returns at once; `done` runs on the planning thread. For jobs, of which there may be any number.
  void PlanLater(const v1::PlanRequest& request, const Progress& progress, const Cancel& cancel,
                 std::function<void(absl::StatusOr<v1::PlanResult>)> done);

  static constexpr int64_t kMostWaiting = 32;

 private:
  using Task = std::function<void(planner::Estimator&)>;

  absl::Status Enqueue(Task task, bool always);
  void Work();
  bool ending() const;

  const std::function<std::unique_ptr<planner::Estimator>()> make_;
  mutable Mutex mutex_;
  Condition changed_;
  std::deque<Task> tasks_ ABSL_GUARDED_BY(mutex_);
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // last: it uses the rest
};

}  // namespace legoai::server
