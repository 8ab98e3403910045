// The threads on which gRPC and HTTP run calls that may block: one pool for the whole server, and a queue for each kind of work.
// A queue may use only its share of the threads, so that one kind of work cannot starve the others. Thread-safe.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <list>
#include <map>
#include <thread>
#include <vector>

#include "core/process/mutex.h"

namespace legoai::server {

class ThreadPool {
 public:
  using Clock = std::chrono::steady_clock;

  explicit ThreadPool(int threads);
  // Its queues must be gone.
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

 private:
  friend class WorkQueue;
  struct Queue {
    const int most_running;
    const size_t most_waiting;
    std::multimap<Clock::time_point, std::function<void()>> waiting = {};  // by due time; first in, first out among equals
    int running = 0;
    bool ending = false;   // all that waits is due now
    bool stopped = false;  // accepts no more work
  };

  void Run();
  // Of the queues below their share, the one whose work is due first; null if none has work.
  Queue* Next() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  Mutex mutex_;
  Condition arrived_;  // for the threads: there may be work to run
  Condition ended_;    // for queues that stop or end: work has finished
  std::list<Queue> queues_ ABSL_GUARDED_BY(mutex_);
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

// Work of one kind, run by the threads of a pool in order of due time.
class WorkQueue {
 public:
  using Clock = ThreadPool::Clock;

  // `pool` is not owned. At most `most_running` pieces of work run at a time, and at most `most_waiting` wait.
  WorkQueue(ThreadPool* pool, int most_running, size_t most_waiting);
  // Runs all that waits, due or not, and returns when it has finished.
  ~WorkQueue();
  WorkQueue(const WorkQueue&) = delete;
  WorkQueue& operator=(const WorkQueue&) = delete;

  // Returns at once: false if too much is waiting or the queue was stopped. The work is due after `after`.
  bool Post(std::function<void()> work, Clock::duration after = {});
  // Drops what waits, returns when what runs has finished, and accepts no more work.
  void Stop();

 private:
  ThreadPool* const pool_;
  std::list<ThreadPool::Queue>::iterator queue_;  // its contents are guarded by the pool's mutex
};

}  // namespace legoai::server
