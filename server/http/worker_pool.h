// A few threads that run what may block, with a bounded queue before them. Thread-safe.
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <thread>
#include <vector>

#include "core/process/mutex.h"

namespace legoai::server {

class WorkerPool {
 public:
  WorkerPool(int threads, size_t max_waiting);
  ~WorkerPool();  // Stop
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  // False: too many wait already, or it was stopped, and `work` will not run.
  bool Submit(std::function<void()> work);
  // What runs is waited for; what waits is dropped.
  void Stop();

 private:
  void Run();

  const size_t max_waiting_;
  Mutex mutex_;
  Condition changed_;
  std::deque<std::function<void()>> waiting_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace legoai::server
