// What wakes the controller's deciding thread. Thread-safe.
#pragma once

#include <chrono>

#include "core/process/mutex.h"

namespace legoai::server {

class Bell {
 public:
  using Time = std::chrono::steady_clock::time_point;

  void Ring() {
    {
      const MutexLock lock(mutex_);
      rung_ = true;
    }
    changed_.NotifyAll();
  }
  // Nobody waits from now on.
  void End() {
    {
      const MutexLock lock(mutex_);
      ended_ = true;
    }
    changed_.NotifyAll();
  }
  // Both give false at the end. Sleeps until `time`, rung or not; waits for a ring, also an earlier one, at most until `time`.
  bool SleepUntil(Time time) {
    MutexLock lock(mutex_);
    while (!ended_ && changed_.WaitUntil(lock, time)) {
    }
    return !ended_;
  }
  bool WaitUntil(Time time) {
    MutexLock lock(mutex_);
    while (!rung_ && !ended_ && changed_.WaitUntil(lock, time)) {
    }
    rung_ = false;
    return !ended_;
  }

 private:
  Mutex mutex_;
  Condition changed_;
  bool rung_ ABSL_GUARDED_BY(mutex_) = false, ended_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace legoai::server
