// The clock that limits on silence are measured on: time in which this process did not run (the machine slept, Ctrl-Z) does not
// count, nor does setting the machine's clock. Not thread-safe.
#pragma once

#include <algorithm>
#include <chrono>
#include <functional>
#include <utility>

#include "absl/time/time.h"

namespace legoai::launch {

class WatchClock {
 public:
  // `clock` stands in for it, for tests; empty: as described above.
  explicit WatchClock(std::function<absl::Duration()> clock = nullptr) : clock_(std::move(clock)) {}

  // To be called several times a second: what is more than a second between two calls is no silence of those who are watched.
  void Tick() {
    constexpr absl::Duration kLongest = absl::Seconds(1);
    const auto looked = std::exchange(looked_, std::chrono::steady_clock::now());
    now_ = clock_ ? clock_() : now_ + std::min(absl::FromChrono(looked_ - looked), kLongest);
  }
  // As of the last Tick().
  absl::Duration now() const { return now_; }

 private:
  const std::function<absl::Duration()> clock_;
  absl::Duration now_;
  std::chrono::steady_clock::time_point looked_ = std::chrono::steady_clock::now();
};

}  // namespace legoai::launch
