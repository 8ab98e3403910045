#include "server/rpc/thread_pool.h"

#include <utility>

namespace legoai::server {

ThreadPool::ThreadPool(int threads, size_t most_waiting) : most_waiting_(most_waiting) {
  for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { Run(); });
}

ThreadPool::~ThreadPool() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    ending_ = true;
  }
  arrived_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

bool ThreadPool::Post(std::function<void()> work, Clock::duration after) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (waiting_.size() >= most_waiting_) return false;
    waiting_.emplace(Clock::now() + after, std::move(work));
  }
  arrived_.notify_one();
  return true;
}

void ThreadPool::Run() {
  std::unique_lock<std::mutex> lock(mutex_);
  for (;;) {
    arrived_.wait(lock, [this] { return ending_ || !waiting_.empty(); });
    if (waiting_.empty()) return;
    const auto first = waiting_.begin();
    if (const Clock::time_point due = first->first; !ending_ && due > Clock::now()) {
      arrived_.wait_until(lock, due);
      continue;
    }
    const std::function<void()> work = std::move(first->second);
    waiting_.erase(first);
    if (!waiting_.empty()) arrived_.notify_one();  // this thread may have been the one that kept the time of the next
    lock.unlock();
    work();
    lock.lock();
  }
}

}  // namespace legoai::server
