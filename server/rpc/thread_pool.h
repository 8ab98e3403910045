// Threads that do pieces of work in the order in which they are due, with a limit on how many wait: those of gRPC's and of HTTP's
// calls that may block. Thread-safe.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <map>
#include <thread>
#include <vector>

#include "core/process/mutex.h"

namespace legoai::server {

class ThreadPool {
 public:
  using Clock = std::chrono::steady_clock;

  // `most_waiting`: pieces of work that may wait beside those that are done.
  ThreadPool(int threads, size_t most_waiting);
  // Does what waits, be it due or not, and returns when all is done.
  ~ThreadPool();
  // Drops what waits, waits for what runs, and takes nothing more.
  void Stop();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  // Returns at once; false, and nothing is done, where too much waits, or after Stop(). The work is due when `after` is over.
  bool Post(std::function<void()> work, Clock::duration after = {});

 private:
  void Run();
  void Join();

  const size_t most_waiting_;
  Mutex mutex_;
  Condition arrived_;
  // By when it is due; what is due at once in its order.
  std::multimap<Clock::time_point, std::function<void()>> waiting_ ABSL_GUARDED_BY(mutex_);
  bool ending_ ABSL_GUARDED_BY(mutex_) = false, stopped_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace legoai::server
