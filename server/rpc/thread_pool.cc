#include "server/rpc/thread_pool.h"

#include <utility>

namespace legoai::server {

ThreadPool::ThreadPool(int threads, size_t most_waiting) : most_waiting_(most_waiting) {
  for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { Run(); });
}

ThreadPool::~ThreadPool() { Join(); }

void ThreadPool::Stop() {
  std::multimap<Clock::time_point, std::function<void()>> dropped;  // what they hold is given back without the lock
  {
    const MutexLock lock(mutex_);
    stopped_ = true;
    dropped.swap(waiting_);
  }
  Join();
}

void ThreadPool::Join() {
  {
    const MutexLock lock(mutex_);
    ending_ = true;
  }
  arrived_.NotifyAll();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

bool ThreadPool::Post(std::function<void()> work, Clock::duration after) {
  {
    const MutexLock lock(mutex_);
    if (waiting_.size() >= most_waiting_ || stopped_) return false;
    waiting_.emplace(Clock::now() + after, std::move(work));
  }
  arrived_.NotifyOne();
  return true;
}

void ThreadPool::Run() {
  MutexLock lock(mutex_);
  for (;;) {
    while (!ending_ && waiting_.empty()) arrived_.Wait(lock);
    if (waiting_.empty()) return;
    const auto first = waiting_.begin();
    if (const Clock::time_point due = first->first; !ending_ && due > Clock::now()) {
      arrived_.WaitUntil(lock, due);
      continue;
    }
    std::function<void()> work = std::move(first->second);
    waiting_.erase(first);
    if (!waiting_.empty()) arrived_.NotifyOne();  // this thread may have been the one that kept the time of the next
    lock.Unlock();
    work();
    work = nullptr;  // what it holds is given back without the lock
    lock.Lock();
  }
}

}  // namespace legoai::server
