// Who waits for changes is woken here: watches of jobs, the page's live view, the controller. It carries no data: whoever is
// woken reads the store. Thread-safe; callbacks run on the thread that notifies, must not block and must not call back into the
// Notifier.
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
  // Ends the subscription when it is destroyed; afterwards the callback does not run any more. The Notifier must outlive it.
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
  // Changes of all jobs and workers by name: that of the job; empty where a worker has changed.
  std::unique_ptr<Subscription> SubscribeToNames(std::function<void(const std::string& job)> callback);
  // After the change is durable.
  void JobChanged(const std::string& job);
  // Where something else is said of these jobs now that is not stored: why they wait.
  void JobsChanged(const std::vector<std::string>& jobs);
  void WorkersChanged();

  // Planning's progress is live only: it is nowhere but here.
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
