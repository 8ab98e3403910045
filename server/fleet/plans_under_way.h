// Jobs in planning, by name, with their clusters and, until they are stored, their results. Thread-safe: it has one mutex and
// depends on no other part.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
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
    std::string key;
    absl::StatusOr<v1::PlanResult> result;
  };

  // `key`: of the plan (plan_cache.h). `keeps`: the workers on which the cluster's slots are kept for the job until its plan
  // is stored. The returned flag becomes true when planning should be abandoned.
  std::shared_ptr<const std::atomic<bool>> Add(const std::string& job, const v1::Cluster& cluster, const std::string& key,
                                               const std::vector<std::string>& keeps);
  // False after End(), which cancels planning without fault of the job.
  bool SetResult(const std::string& job, absl::StatusOr<v1::PlanResult> result);
  void Erase(const std::string& job);

  std::vector<Ended> WithResults() const;
  struct Running {
    std::string job, key;
    bool has_result = false;  // which is not stored yet
  };
  // Cancels those for which `is_planned` is false. Returns the others.
  std::vector<Running> CancelOthers(const std::function<bool(const std::string& job)>& is_planned);
  std::map<std::string, int64_t> KeptSlots() const;  // by worker
  // Cancels all and accepts no more results.
  void End();

 private:
  struct Plan {
    std::shared_ptr<std::atomic<bool>> cancelled = std::make_shared<std::atomic<bool>>(false);
    v1::Cluster cluster;
    std::string key;
    std::vector<std::string> keeps;
    std::optional<absl::StatusOr<v1::PlanResult>> result;
  };

  mutable Mutex mutex_;
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
  std::map<std::string, Plan> plans_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace legoai::server
