#include "worker/agent/backoff.h"

#include <algorithm>

namespace legoai::agent {

Backoff::Backoff(absl::Duration first, absl::Duration longest, uint64_t seed)
    : first_(first), longest_(longest), limit_(first), random_(seed) {}

absl::Duration Backoff::Next() {
  const absl::Duration limit = limit_;
  limit_ = std::min(longest_, 2 * limit_);
  return limit * std::uniform_real_distribution<double>(0.5, 1)(random_);
}

}  // namespace legoai::agent
