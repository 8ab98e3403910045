#include "tests/bench/job_watcher.h"

#include <utility>

namespace legoai::integration {

JobWatcher::JobWatcher(v1::ControlPlane::Stub* stub, const std::string& job, SentAt sent_at) : sent_at_(std::move(sent_at)) {
  request_.set_name(job);
  stub->async()->WatchJob(&context_, &request_, this);
  StartRead(&incoming_);
  StartCall();
}

void JobWatcher::OnReadDone(bool ok) {
  if (!ok) return;
  const auto now = Clock::now();
  const int64_t step = incoming_.job().progress().step();
  const auto sent = sent_at_(step);
  {
    const MutexLock lock(mutex_);
    // The first tells of the job as it was.
    if (messages_++ > 0 && step > step_ && sent) seconds_.push_back(std::chrono::duration<double>(now - *sent).count());
    step_ = step;
  }
  StartRead(&incoming_);
}

void JobWatcher::OnDone(const grpc::Status& status) {
  const MutexLock lock(mutex_);
  done_ = true;
  if (!cancelled_) error_ = status.ok() ? "it ended" : status.error_message();
  ended_.NotifyAll();
}

void JobWatcher::End() {
  MutexLock lock(mutex_);
  cancelled_ = true;
  context_.TryCancel();
  while (!done_) ended_.Wait(lock);
}

int64_t JobWatcher::messages() const {
  const MutexLock lock(mutex_);
  return messages_;
}

std::vector<double> JobWatcher::seconds() const {
  const MutexLock lock(mutex_);
  return seconds_;
}

std::string JobWatcher::error() const {
  const MutexLock lock(mutex_);
  return error_;
}

}  // namespace legoai::integration
