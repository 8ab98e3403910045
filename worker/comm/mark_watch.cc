#include "worker/comm/mark_watch.h"

#include <utility>

namespace legoai::comm {

MarkWatch::MarkWatch(uint64_t most_records, std::function<void(const Moment&)> passed,
                     std::optional<std::chrono::milliseconds> interval)
    : most_records_(most_records), passed_(std::move(passed)), interval_(interval) {}

MarkWatch::~MarkWatch() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
  Poll();
}

void MarkWatch::Add(int64_t stream, const Moment& moment, std::unique_ptr<StreamMark> mark) {
  std::lock_guard lock(mutex_);
  if (interval_ && !thread_.joinable()) thread_ = std::thread([this] { Watch(); });
  if (streams_.empty()) changed_.notify_all();
  streams_[stream].push_back({moment, std::move(mark)});
  Forget(moment.record);
}

void MarkWatch::Poll() {
  std::lock_guard lock(mutex_);
  PollLocked();
}

size_t MarkWatch::pending() const {
  std::lock_guard lock(mutex_);
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
  std::unique_lock lock(mutex_);
  while (!stop_) {
    changed_.wait(lock, [this] { return stop_ || !streams_.empty(); });
    changed_.wait_for(lock, *interval_, [this] { return stop_; });
    PollLocked();
  }
}

}  // namespace legoai::comm
