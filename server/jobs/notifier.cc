#include "server/jobs/notifier.h"

#include <utility>

namespace legoai::server {

Notifier::Subscription::~Subscription() {
  const MutexLock lock(notifier_->mutex_);
  const auto of_job = notifier_->subscriptions_.find(job_);
  of_job->second.erase(id_);
  if (of_job->second.empty()) notifier_->subscriptions_.erase(of_job);
}

std::unique_ptr<Notifier::Subscription> Notifier::Subscribe(const std::string& job, std::function<void()> callback) {
  return Add(job, [callback = std::move(callback)](const std::string&) { callback(); });
}

std::unique_ptr<Notifier::Subscription> Notifier::SubscribeToNames(std::function<void(const std::string& job)> callback) {
  return Add("", std::move(callback));
}

std::unique_ptr<Notifier::Subscription> Notifier::Add(const std::string& job, Callback callback) {
  const MutexLock lock(mutex_);
  const uint64_t id = next_id_++;
  subscriptions_[job][id] = std::move(callback);
  return std::unique_ptr<Subscription>(new Subscription(this, job, id));
}

// Callbacks run under the lock: that is what makes the end of a subscription the end of its calls.
void Notifier::Call(const std::string& subscribed, const std::string& job) {
  const auto found = subscriptions_.find(subscribed);
  if (found == subscriptions_.end()) return;
  for (const auto& [id, callback] : found->second) callback(job);
}

void Notifier::Notify(const std::string& job) {
  Call("", job);
  if (!job.empty()) Call(job, job);
}

void Notifier::JobChanged(const std::string& job) {
  const MutexLock lock(mutex_);
  Notify(job);
}

void Notifier::JobsChanged(const std::vector<std::string>& jobs) {
  const MutexLock lock(mutex_);
  for (const std::string& job : jobs) Notify(job);
}

void Notifier::WorkersChanged() {
  const MutexLock lock(mutex_);
  Notify("");
}

void Notifier::AllChanged() {
  const MutexLock lock(mutex_);
  Call("", "");
  Call("", kAnyJob);
  for (const auto& [job, of_job] : subscriptions_) {
    if (job.empty()) continue;
    for (const auto& [id, callback] : of_job) callback(job);
  }
}

void Notifier::SetPlanning(const std::string& job, const v1::PlanningProgress& progress) {
  const MutexLock lock(mutex_);
  planning_[job] = progress;
  Notify(job);
}

void Notifier::ClearPlanning(const std::string& job) {
  const MutexLock lock(mutex_);
  planning_.erase(job);
  Notify(job);
}

std::optional<v1::PlanningProgress> Notifier::Planning(const std::string& job) const {
  const MutexLock lock(mutex_);
  const auto found = planning_.find(job);
  return found == planning_.end() ? std::nullopt : std::optional(found->second);
}

}  // namespace legoai::server
