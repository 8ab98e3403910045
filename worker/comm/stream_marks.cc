#include "worker/comm/stream_marks.h"

#include <utility>

namespace legoai::comm {

MarkWatch::MarkWatch(uint64_t most_records, std::function<void(const Moment&)> passed,
                     std::optional<std::chrono::milliseconds> interval)
    : most_records_(most_records), passed_(std::move(passed)), interval_(interval) {}

MarkWatch::~MarkWatch() {
  {
    const MutexLock lock(mutex_);
    stop_ = true;
  }
  changed_.NotifyAll();
  if (thread_.joinable()) thread_.join();
  Poll();
}

void MarkWatch::Add(int64_t stream, const Moment& moment, std::unique_ptr<StreamMark> mark) {
  const MutexLock lock(mutex_);
  if (interval_ && !thread_.joinable()) thread_ = std::thread([this] { Watch(); });
  if (streams_.empty()) changed_.NotifyAll();
  streams_[stream].push_back({moment, std::move(mark)});
  Forget(moment.record);
}

void MarkWatch::Poll() {
  const MutexLock lock(mutex_);
  PollLocked();
}

size_t MarkWatch::pending() const {
  const MutexLock lock(mutex_);
  size_t count = 0;
  for (const auto& [stream, marks] : streams_) count += marks.size();
  return count;
}

// A stream passes its marks in order: the first that is not passed ends the look at it.
void MarkWatch::PollLocked() {
  for (auto stream = streams_.begin(); stream != streams_.end();) {
    auto& marks = stream->second;
    while (!marks.empty() && marks.front().mark->Passed()) {
      passed_(marks.front().moment);
      marks.pop_front();
    }
    stream = marks.empty() ? streams_.erase(stream) : std::next(stream);
  }
}

void MarkWatch::Forget(uint64_t newest) {
  for (auto stream = streams_.begin(); stream != streams_.end();) {
    auto& marks = stream->second;
    while (!marks.empty() && marks.front().moment.record + most_records_ <= newest) marks.pop_front();
    stream = marks.empty() ? streams_.erase(stream) : std::next(stream);
  }
}

void MarkWatch::Watch() {
  MutexLock lock(mutex_);
  while (!stop_) {
    while (!stop_ && streams_.empty()) changed_.Wait(lock);
    const auto next = std::chrono::steady_clock::now() + *interval_;
    while (!stop_ && changed_.WaitUntil(lock, next)) {
    }
    PollLocked();
  }
}

void OverdueCalls::Add(const char* what, std::unique_ptr<StreamMark> begun, std::unique_ptr<StreamMark> done) {
  if (begun == nullptr || done == nullptr) return;
  ForgetDone();  // or a step's calls would add up until somebody asks
  calls_.push_back({what, std::move(begun), std::move(done), std::nullopt});
}

// From the front: of calls on two streams a later one may end first, and goes with the other.
void OverdueCalls::ForgetDone() {
  while (!calls_.empty() && calls_.front().done->Passed()) calls_.pop_front();
}

const char* OverdueCalls::Overdue(Clock::time_point now) {
  ForgetDone();
  for (Call& call : calls_) {
    if (!call.begun->Passed() || call.done->Passed()) continue;
    if (!call.seen) call.seen = now;
    if (now - *call.seen >= limit_) return call.what;
  }
  return nullptr;
}

}  // namespace legoai::comm
