// Jobs that are with the planner, by name: what for, and what it has found until that is stored. Thread-safe: it has one mutex,
// and knows no other part.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "core/process/mutex.h"
#include "proto/legoai/v1/cluster.pb.h"
#include "proto/legoai/v1/plan.pb.h"

namespace legoai::server {

class PlansUnderWay {
 public:
  struct Ended {
    std::string job;
    v1::Cluster cluster;
    absl::StatusOr<v1::PlanResult> result;
  };

  // `keeps`: the cluster's slots on this worker are kept for the job until its plan is stored; empty: on none. True, from then
  // on, where the planning shall end in vain.
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

}  // namespace legoai::server
