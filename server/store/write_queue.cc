#include "server/store/write_queue.h"

#include <utility>

namespace legoai::store {

WriteQueue::WriteQueue(std::function<void(const Group&)> run) : run_(std::move(run)), thread_([this] { Loop(); }) {}

WriteQueue::~WriteQueue() {
  {
    const MutexLock lock(mutex_);
    end_ = true;
    wake_.NotifyOne();
  }
  thread_.join();
}

absl::Status WriteQueue::Write(const Work& work) {
  Request request(work);
  MutexLock lock(mutex_);
  waiting_.push_back(&request);
  wake_.NotifyOne();
  while (!request.done) request.answered.Wait(lock);
  return std::move(request.status);
}

void WriteQueue::Loop() {
  MutexLock lock(mutex_);
  while (true) {
    while (!end_ && waiting_.empty()) wake_.Wait(lock);
    if (waiting_.empty()) return;
    const Group group = std::exchange(waiting_, {});
    lock.Unlock();
    run_(group);
    lock.Lock();
    // Under the lock: once it is free the requests are gone.
    for (Request* request : group) {
      request->done = true;
      request->answered.NotifyOne();
    }
  }
}

}  // namespace legoai::store
