// Threads that do pieces of work in the order in which they come, with a limit on how many wait. Thread-safe.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace legoai::server {

class ThreadPool {
 public:
  // `most_waiting`: pieces of work that may wait beside those that are done.
  ThreadPool(int threads, size_t most_waiting);
  // Does what waits, and returns when all is done.
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  // Returns at once; false, and nothing is done, where too much waits.
  bool Post(std::function<void()> work);

 private:
  void Run();

  const size_t most_waiting_;
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::deque<std::function<void()>> waiting_;
  bool ending_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace legoai::server
