// Jobs in planning, by name, with their clusters and, until they are stored, their results. Thread-safe: it has one mutex and
// depends on no other part.
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

  // `keeps`: the worker on which the cluster's slots are kept for the job until its plan is stored; empty: none. The returned
  // flag becomes true when planning should be abandoned.
  std::shared_ptr<const std::atomic<bool>> Add(const std::string& job, const v1::Cluster& cluster, const std::string& keeps);
  // False after End(), which cancels planning without fault of the job.
  bool SetResult(const std::string& job, absl::StatusOr<v1::PlanResult> result);
  void Erase(const std::string& job);

  std::vector<Ended> WithResults() const;
  // Cancels those for which `is_planned` is false. Returns whether any is still being planned.
  bool IsBusy(const std::function<bool(const std::string& job)>& is_planned);
  std::map<std::string, int64_t> KeptSlots() const;  // by worker
  // Cancels all and accepts no more results.
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

// The planner of the service: one thread that plans and simulates for jobs and users' calls, one at a time, because each uses all
// of the lego-sim processes. Thread-safe.
class Planning {
 public:
  // `make` is called on the planning thread, before the first use: children die with the thread that spawned them.
  explicit Planning(std::function<std::unique_ptr<planner::Estimator>()> make);
  ~Planning();  // cancels running work, answers waiting calls with Cancelled

  using Progress = std::function<void(const planner::PlanProgress&)>;
  using Cancel = std::function<bool()>;

  // Block until done. Errors: ResourceExhausted if more than kMostWaiting wait; Cancelled; those of planner::Plan.
  absl::StatusOr<v1::PlanResult> Plan(const v1::PlanRequest& request, const Progress& progress, const Cancel& cancel);
  absl::StatusOr<v1::Estimate> Simulate(const v1::SimRequest& request, const Cancel& cancel);

  // Returns at once; `done` runs on the planning thread. For jobs; their number is not limited.
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
