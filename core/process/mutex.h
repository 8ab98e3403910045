// Locks that the compiler checks: guarded members are annotated, and clang's -Wthread-safety reports access without the lock
// (tools/check_locks). std::mutex underneath, which sanitizers understand.
//
//   Mutex mutex_;
//   int64_t count_ ABSL_GUARDED_BY(mutex_) = 0;
//   void Grow() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

#include "absl/base/thread_annotations.h"

namespace legoai {

class ABSL_LOCKABLE Mutex {
 public:
  void Lock() ABSL_EXCLUSIVE_LOCK_FUNCTION() { mutex_.lock(); }
  void Unlock() ABSL_UNLOCK_FUNCTION() { mutex_.unlock(); }

 private:
  friend class MutexLock;
  std::mutex mutex_;
};

// Holds a mutex for its lifetime, except between Unlock and Lock.
class ABSL_SCOPED_LOCKABLE MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) ABSL_EXCLUSIVE_LOCK_FUNCTION(mutex) : lock_(mutex.mutex_) {}
  ~MutexLock() ABSL_UNLOCK_FUNCTION() {}
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

  void Unlock() ABSL_UNLOCK_FUNCTION() { lock_.unlock(); }
  void Lock() ABSL_EXCLUSIVE_LOCK_FUNCTION() { lock_.lock(); }

 private:
  friend class Condition;
  std::unique_lock<std::mutex> lock_;
};

// A condition variable. Wait in a loop: `while (!ready_) changed_.Wait(lock);` (the checker would not know that a predicate
// lambda holds the mutex).
class Condition {
 public:
  void Wait(MutexLock& lock) { condition_.wait(lock.lock_); }
  // False: timed out.
  template <class Clock, class Duration>
  bool WaitUntil(MutexLock& lock, const std::chrono::time_point<Clock, Duration>& time) {
    return condition_.wait_until(lock.lock_, time) == std::cv_status::no_timeout;
  }
  template <class Rep, class Period>
  bool WaitFor(MutexLock& lock, const std::chrono::duration<Rep, Period>& time) {
    return WaitUntil(lock, std::chrono::steady_clock::now() + time);
  }
  void NotifyOne() { condition_.notify_one(); }
  void NotifyAll() { condition_.notify_all(); }

 private:
  std::condition_variable condition_;
};

}  // namespace legoai
