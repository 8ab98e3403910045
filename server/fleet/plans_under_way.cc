#include "server/fleet/plans_under_way.h"

namespace legoai::server {

std::shared_ptr<const std::atomic<bool>> PlansUnderWay::Add(const std::string& job, const v1::Cluster& cluster,
                                                            const std::string& key, const std::vector<std::string>& keeps) {
  const MutexLock lock(mutex_);
  Plan& plan = plans_[job] = Plan();
  plan.cluster = cluster;
  plan.key = key;
  plan.keeps = keeps;
  *plan.cancelled = ending_;
  return plan.cancelled;
}

bool PlansUnderWay::SetResult(const std::string& job, absl::StatusOr<v1::PlanResult> result) {
  const MutexLock lock(mutex_);
  const auto found = plans_.find(job);
  if (ending_ || found == plans_.end()) return false;
  found->second.result = std::move(result);
  return true;
}

void PlansUnderWay::Erase(const std::string& job) {
  const MutexLock lock(mutex_);
  plans_.erase(job);
}

std::vector<PlansUnderWay::Ended> PlansUnderWay::WithResults() const {
  const MutexLock lock(mutex_);
  std::vector<Ended> ended;
  for (const auto& [job, plan] : plans_) {
    if (plan.result) ended.push_back({job, plan.cluster, plan.key, *plan.result});
  }
  return ended;
}

std::vector<PlansUnderWay::Running> PlansUnderWay::CancelOthers(const std::function<bool(const std::string& job)>& is_planned) {
  const MutexLock lock(mutex_);
  std::vector<Running> running;
  for (const auto& [job, plan] : plans_) {
    if (!is_planned(job)) *plan.cancelled = true;
    if (!*plan.cancelled) running.push_back({job, plan.key, plan.result.has_value()});
  }
  return running;
}

std::map<std::string, int64_t> PlansUnderWay::KeptSlots() const {
  const MutexLock lock(mutex_);
  std::map<std::string, int64_t> kept;
  for (const auto& [job, plan] : plans_) {
    if (*plan.cancelled) continue;
    for (const std::string& worker : plan.keeps) kept[worker] += plan.cluster.devices_per_node();
  }
  return kept;
}

void PlansUnderWay::End() {
  const MutexLock lock(mutex_);
  ending_ = true;
  for (const auto& [job, plan] : plans_) *plan.cancelled = true;
}

}  // namespace legoai::server
