// Tracks which marks the streams of a device have passed. If calls only enqueue collectives, this is how the flight recorder
// learns that one has started or is done, and how NCCL's communicators detect a hang. Torch-free.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <thread>

#include "core/process/mutex.h"
#include "worker/comm/streams.h"

namespace legoai::comm {

// Reports each passed mark. Thread-safe. Marks are checked by Poll, and by a thread of its own while any is pending: the rank's
// other threads may all be waiting for a hung device, and progress before the hang must still be recorded.
class MarkWatch {
 public:
  struct Moment {
    uint64_t record = 0;     // of the flight ring; later calls have larger ones
    bool completed = false;  // otherwise started
  };

  // `passed` is called with each moment once its mark is passed: in order within a stream, from any thread, one at a time. Marks
  // of records that are `most_records` or more behind the newest are dropped, so that a hung device accumulates a bounded number.
  // With no `interval` there is no thread.
  MarkWatch(uint64_t most_records, std::function<void(const Moment&)> passed, std::optional<std::chrono::milliseconds> interval);
  // Polls once more without waiting.
  ~MarkWatch();
  MarkWatch(const MarkWatch&) = delete;
  MarkWatch& operator=(const MarkWatch&) = delete;

  // Marks of one stream are passed in the order of adding.
  void Add(int64_t stream, const Moment& moment, std::unique_ptr<StreamMark> mark);
  void Poll();
  size_t pending() const;

 private:
  struct Pending {
    Moment moment;
    std::unique_ptr<StreamMark> mark;
  };
  void PollLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Forget(uint64_t newest) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Watch();

  const uint64_t most_records_;
  const std::function<void(const Moment&)> passed_;
  const std::optional<std::chrono::milliseconds> interval_;
  mutable Mutex mutex_;
  Condition changed_;
  std::map<int64_t, std::deque<Pending>> streams_ ABSL_GUARDED_BY(mutex_);  // with a mark pending
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_ ABSL_GUARDED_BY(mutex_);  // starts with the first mark; joined by the destructor
};

// Calls that a device has not completed, and whether one of them is overdue: if calls return once enqueued, this is the only sign
// of a lost peer. The limit counts from when the device is first seen inside the call, so that earlier work does not count. Not
// thread-safe.
class OverdueCalls {
 public:
  using Clock = std::chrono::steady_clock;
  explicit OverdueCalls(Clock::duration limit) : limit_(limit) {}

  // `what` is not owned and outlives the call. Calls without marks are ignored.
  void Add(const char* what, std::unique_ptr<StreamMark> begun, std::unique_ptr<StreamMark> done);
  // A call that the device was seen in at least the limit ago; null if there is none. Drops completed calls.
  const char* Overdue(Clock::time_point now);
  size_t size() const { return calls_.size(); }

 private:
  struct Call {
    const char* what;
    std::unique_ptr<StreamMark> begun, done;
    std::optional<Clock::time_point> seen;
  };
  void ForgetDone();

  const Clock::duration limit_;
  std::deque<Call> calls_;
};

}  // namespace legoai::comm
