#include "server/fleet/wait_reasons.h"

#include <utility>

namespace legoai::server {

std::vector<std::string> WaitReasons::Replace(Waits waits) {
  std::vector<std::string> changed;
  const MutexLock lock(mutex_);
  for (const auto& [job, wait] : waits) {
    const auto before = waits_.find(job);
    if (before == waits_.end() || before->second != wait) changed.push_back(job);
  }
  for (const auto& [job, wait] : waits_) {
    if (waits.count(job) == 0) changed.push_back(job);
  }
  waits_ = std::move(waits);
  return changed;
}

bool WaitReasons::Describe(v1::Job* job) const {
  const MutexLock lock(mutex_);
  const auto found = waits_.find(job->name());
  if (found == waits_.end() || found->second.version != job->version()) return false;
  job->set_reason(found->second.reason);
  if (found->second.position > 0) job->set_queue_position(found->second.position);
  return true;
}

}  // namespace legoai::server
