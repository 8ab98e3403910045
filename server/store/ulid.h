// ULIDs, ids that sort by creation time: 48 bits of milliseconds since 1970 and 80 random bits, as 26 characters of Crockford's
// base 32. Clock and random bits are injected.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "core/process/mutex.h"

namespace legoai::store {

// Thread-safe. Each id is larger than all previous ones of this object, even if the clock stands still or goes back.
class UlidSource {
 public:
  // `clock_us`: microseconds UTC. `random`: 64 random bits per call. Neither is called by two threads at a time.
  UlidSource(std::function<int64_t()> clock_us, std::function<uint64_t()> random)
      : clock_us_(std::move(clock_us)), random_(std::move(random)) {}

  std::string Next();

 private:
  const std::function<int64_t()> clock_us_;
  const std::function<uint64_t()> random_;
  Mutex mutex_;
  int64_t milliseconds_ ABSL_GUARDED_BY(mutex_) = -1;  // of the previous id
  uint64_t high_ ABSL_GUARDED_BY(mutex_) = 0;          // its random bits, the upper 16
  uint64_t low_ ABSL_GUARDED_BY(mutex_) = 0;           // and the lower 64
};

// 64 bits of the operating system's random source. Thread-safe.
uint64_t SystemRandom();

// Whether it is a ULID as written by UlidSource: 26 characters, upper case, at most 128 bits.
bool IsUlid(std::string_view text);

// The milliseconds since 1970 in a ULID.
int64_t UlidMilliseconds(std::string_view ulid);

}  // namespace legoai::store
