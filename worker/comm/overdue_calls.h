// Calls that a device has not got through yet, and whether one of them stands still: where a call returns as soon as it is
// enqueued, a peer that is gone shows in nothing else. The limit counts from when the device is first seen in the call, so that
// work before it costs nothing. Torch-free. Not thread-safe.
#pragma once

#include <chrono>
#include <deque>
#include <memory>
#include <optional>

#include "worker/comm/streams.h"

namespace legoai::comm {

class OverdueCalls {
 public:
  using Clock = std::chrono::steady_clock;
  explicit OverdueCalls(Clock::duration limit) : limit_(limit) {}

  // `what` is not owned and outlives the call. Without marks nothing is known, and nothing is said.
  void Add(const char* what, std::unique_ptr<StreamMark> begun, std::unique_ptr<StreamMark> done);
  // A call that the device was seen in at least the limit ago; null: there is none. Forgets those that are done.
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
