// The threads on which the calls of gRPC and of HTTP run that may block: one pool for the whole server, and for each kind of work
// a queue with a share of it, so that work of one kind, however much there is, leaves threads to the others. Thread-safe.
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
    std::multimap<Clock::time_point, std::function<void()>> waiting = {};  // by when it is due; what is due at once in its order
    int running = 0;
    bool ending = false;   // all that waits is due
    bool stopped = false;  // takes nothing more
  };

  void Run();
  // Of the queues that may run more, the one with the work that is due first; null: none has any.
  Queue* Next() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  Mutex mutex_;
  Condition arrived_;  // for the threads: there may be work
  Condition ended_;    // for queues that end: work is done
  std::list<Queue> queues_ ABSL_GUARDED_BY(mutex_);
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

// Work of one kind, done by the threads of a pool in the order in which it is due.
class WorkQueue {
 public:
  using Clock = ThreadPool::Clock;

  // `pool` is not owned. At most `most_running` pieces of work run at a time, and `most_waiting` wait beside them.
  WorkQueue(ThreadPool* pool, int most_running, size_t most_waiting);
  // Does what waits, be it due or not, and returns when all is done.
  ~WorkQueue();
  WorkQueue(const WorkQueue&) = delete;
  WorkQueue& operator=(const WorkQueue&) = delete;

  // Returns at once; false, and nothing is done, where too much waits, or after Stop(). The work is due when `after` is over.
  bool Post(std::function<void()> work, Clock::duration after = {});
  // Drops what waits, waits for what runs, and takes nothing more.
  void Stop();

 private:
  ThreadPool* const pool_;
  std::list<ThreadPool::Queue>::iterator queue_;  // its contents are guarded by the pool's mutex
};

}  // namespace legoai::server
