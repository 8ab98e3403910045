// Jobs that are with the planner, by name: what for, and what it has found until that is stored. Thread-safe: it has one mutex,
// and knows no other part.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "core/process/mutex.h"
#include "planner/estimates.h"
#include "planner/plan.h"
#include "proto/legoai/v1/cluster.pb.h"
#include "proto/legoai/v1/plan.pb.h"
#include "proto/legoai/v1/sim.pb.h"

namespace legoai::server {

class PlansUnderWay {
 public:
  struct Ended {
    std::string job;
    v1::Cluster cluster;
    absl::StatusOr<v1::PlanResult> result;
  };

  // `keeps`: the cluster's slots on this worker are kept for the job until its plan is stored; empty: on none. True, from then
  // on, once the planning is to be abandoned.
  std::shared_ptr<const std::atomic<bool>> Add(const std::string& job, const v1::Cluster& cluster, const std::string& keeps);
  // False after End(): it was given up for that, which is no fault of the job.
  bool SetResult(const std::string& job, absl::StatusOr<v1::PlanResult> result);
  void Erase(const std::string& job);

  std::vector<Ended> WithResults() const;
  // Cancels those of which `is_planned` is false. Whether one is still with the planner.
  bool IsBusy(const std::function<bool(const std::string& job)>& is_planned);
  std::map<std::string, int64_t> KeptSlots() const;  // by worker
  // All are cancelled, and no result is taken any more.
  void End();

 private:
  struct Plan {
    std::shared_ptr<std::atomic<bool>> cancelled = std::make_shared<std::atomic<bool>>(false);
    v1::Cluster cluster;
    std::string keeps;
    std::optional<absl::StatusOr<v1::PlanResult>> result;
  };

  mutable Mutex mutex_;
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
  std::map<std::string, Plan> plans_ ABSL_GUARDED_BY(mutex_);
};

// The planner of the service: one thread that plans and simulates for jobs and for users' calls, one after the other, with the
// same lego-sim processes. One at a time, as each takes all of the processes. Thread-safe.
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
