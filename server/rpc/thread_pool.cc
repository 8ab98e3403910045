#include "server/rpc/thread_pool.h"

#include <utility>

namespace legoai::server {

ThreadPool::ThreadPool(int threads) {
  for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { Run(); });
}

ThreadPool::~ThreadPool() {
  {
    const MutexLock lock(mutex_);
    ending_ = true;
  }
  arrived_.NotifyAll();
  for (std::thread& thread : threads_) thread.join();
}

ThreadPool::Queue* ThreadPool::Next() {
  const auto due = [](const Queue& queue) { return queue.ending ? Clock::time_point::min() : queue.waiting.begin()->first; };
  Queue* next = nullptr;
  for (Queue& queue : queues_) {
    if (queue.waiting.empty() || queue.running >= queue.most_running) continue;
    if (next == nullptr || due(queue) < due(*next)) next = &queue;
  }
  return next;
}

void ThreadPool::Run() {
  MutexLock lock(mutex_);
  while (true) {
    Queue* const queue = Next();
    if (queue == nullptr) {
      if (ending_) return;
      arrived_.Wait(lock);
      continue;
    }
    const auto first = queue->waiting.begin();
    if (const Clock::time_point due = first->first; !queue->ending && due > Clock::now()) {
      arrived_.WaitUntil(lock, due);
      continue;
    }
    std::function<void()> work = std::move(first->second);
    queue->waiting.erase(first);
    ++queue->running;
    if (Next() != nullptr) arrived_.NotifyOne();  // this thread may have been the one that kept the time of the next
    lock.Unlock();
    work();
    work = nullptr;  // what it holds is given back without the lock
    lock.Lock();
    --queue->running;
    ended_.NotifyAll();
  }
}

WorkQueue::WorkQueue(ThreadPool* pool, int most_running, size_t most_waiting) : pool_(pool) {
  const MutexLock lock(pool_->mutex_);
  queue_ = pool_->queues_.insert(pool_->queues_.end(), ThreadPool::Queue{most_running, most_waiting});
}

WorkQueue::~WorkQueue() {
  MutexLock lock(pool_->mutex_);
  queue_->ending = true;
  pool_->arrived_.NotifyAll();
  while (!queue_->waiting.empty() || queue_->running > 0) pool_->ended_.Wait(lock);
  pool_->queues_.erase(queue_);
}

bool WorkQueue::Post(std::function<void()> work, Clock::duration after) {
  {
    const MutexLock lock(pool_->mutex_);
    if (queue_->waiting.size() >= queue_->most_waiting || queue_->stopped) return false;
    queue_->waiting.emplace(Clock::now() + after, std::move(work));
  }
  pool_->arrived_.NotifyOne();
  return true;
}

void WorkQueue::Stop() {
  std::multimap<Clock::time_point, std::function<void()>> dropped;  // what they hold is given back without the lock
  MutexLock lock(pool_->mutex_);
  queue_->stopped = true;
  dropped.swap(queue_->waiting);
  while (queue_->running > 0) pool_->ended_.Wait(lock);
}

}  // namespace legoai::server
