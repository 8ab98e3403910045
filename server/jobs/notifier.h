// Wakes those that wait for changes: watches of jobs, the page's live view, the controller. It carries no data: subscribers read
// the store. Thread-safe; callbacks run on the notifying thread, must not block and must not call back into the Notifier.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/process/mutex.h"
#include "proto/legoai/v1/control_plane.pb.h"

namespace legoai::server {

class Notifier {
 public:
  static constexpr char kAnyJob[] = "*";

  // Ends the subscription when destroyed; the callback does not run afterwards. The Notifier must outlive it.
  class Subscription {
   public:
    ~Subscription();
    Subscription(const Subscription&) = delete;
    Subscription& operator=(const Subscription&) = delete;

   private:
    friend class Notifier;
    Subscription(Notifier* notifier, const std::string& job, uint64_t id) : notifier_(notifier), job_(job), id_(id) {}
    Notifier* const notifier_;
    const std::string job_;
    const uint64_t id_;
  };

  // `job`: resource name; empty: changes of all jobs and workers.
  std::unique_ptr<Subscription> Subscribe(const std::string& job, std::function<void()> callback);
  // All changes, with the name of the job; empty if a worker has changed, kAnyJob if any job may have.
  std::unique_ptr<Subscription> SubscribeToNames(std::function<void(const std::string& job)> callback);
  // Call it after the change is durable.
  void JobChanged(const std::string& job);
  // Something about these jobs that is not stored has changed: why they wait.
  void JobsChanged(const std::vector<std::string>& jobs);
  void WorkersChanged();
  // Anything may have changed, as after another server has written: all that wait are woken.
  void AllChanged();

  // Progress of planning is only kept here.
  void SetPlanning(const std::string& job, const v1::PlanningProgress& progress);
  void ClearPlanning(const std::string& job);
  std::optional<v1::PlanningProgress> Planning(const std::string& job) const;

 private:
  using Callback = std::function<void(const std::string&)>;
  std::unique_ptr<Subscription> Add(const std::string& job, Callback callback);
  void Call(const std::string& subscribed, const std::string& job) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Notify(const std::string& job) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  mutable Mutex mutex_;
  uint64_t next_id_ ABSL_GUARDED_BY(mutex_) = 1;
  std::map<std::string, std::map<uint64_t, Callback>> subscriptions_ ABSL_GUARDED_BY(mutex_);  // by job, "" for all
  std::map<std::string, v1::PlanningProgress> planning_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace legoai::server
