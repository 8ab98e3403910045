#include "server/http/worker_pool.h"

#include <utility>

namespace legoai::server {

WorkerPool::WorkerPool(int threads, size_t max_waiting) : max_waiting_(max_waiting) {
  for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { Run(); });
}

WorkerPool::~WorkerPool() { Stop(); }

void WorkerPool::Stop() {
  std::deque<std::function<void()>> dropped;
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
    dropped.swap(waiting_);
  }
  changed_.NotifyAll();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

bool WorkerPool::Submit(std::function<void()> work) {
  {
    const MutexLock lock(mutex_);
    if (stopping_ || waiting_.size() >= max_waiting_) return false;
    waiting_.push_back(std::move(work));
  }
  changed_.NotifyOne();
  return true;
}

void WorkerPool::Run() {
  MutexLock lock(mutex_);
  while (true) {
    while (!stopping_ && waiting_.empty()) changed_.Wait(lock);
    if (stopping_) return;
    std::function<void()> work = std::move(waiting_.front());
    waiting_.pop_front();
    lock.Unlock();
    work();
    work = nullptr;  // what it holds is given back without the lock
    lock.Lock();
  }
}

}  // namespace legoai::server
