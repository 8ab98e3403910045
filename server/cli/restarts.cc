#include "server/cli/restarts.h"

#include <algorithm>

namespace legoai::cli {
namespace {

constexpr absl::Duration kFirstPause = absl::Seconds(1);
constexpr absl::Duration kLongestPause = absl::Seconds(60);

}  // namespace

Restarts::Restarts(int64_t count, absl::Duration init_timeout)
    : longest_(std::min(kLongestPause, init_timeout / 2)), left_(count) {}

absl::Duration Restarts::Take(std::optional<int64_t> checkpoint) {
  --left_;
  const bool has_grown = pause_ > absl::ZeroDuration() && checkpoint <= checkpoint_;
  pause_ = std::min(has_grown ? 2 * pause_ : kFirstPause, longest_);
  checkpoint_ = checkpoint;
  return pause_;
}

}  // namespace legoai::cli
