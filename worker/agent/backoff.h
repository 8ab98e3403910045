// How long to wait before the next try to reach the server: longer after every failure, with chance in it, so that a thousand
// agents do not come back at once. Torch-free. Not thread-safe.
#pragma once

#include <cstdint>
#include <random>

#include "absl/time/time.h"

namespace legoai::agent {

class Backoff {
 public:
  Backoff(absl::Duration first, absl::Duration longest, uint64_t seed);

  // Between half of the present limit and all of it; the limit doubles.
  absl::Duration Next();
  // The server was reached.
  void Reset() { limit_ = first_; }

 private:
  const absl::Duration first_, longest_;
  absl::Duration limit_;
  std::mt19937_64 random_;
};

}  // namespace legoai::agent
