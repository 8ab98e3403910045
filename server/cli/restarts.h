// How often, and after which pauses, `lego train --max-restarts` begins once more. Not thread-safe.
#pragma once

#include <cstdint>
#include <optional>

#include "absl/time/time.h"

namespace legoai::cli {

class Restarts {
 public:
  // At most `count`. Hosts of a gang wait for each other as long as `init_timeout`: no pause is longer than half of that, so that
  // those whose pauses differ still meet.
  Restarts(int64_t count, absl::Duration init_timeout);

  int64_t left() const { return left_; }
  // After a failure: takes one that is left. The pause before it is 1 s, and twice as long each time, up to 60 s, while
  // `checkpoint`, the latest step that is saved, is no later one than at the failure before.
  absl::Duration Take(std::optional<int64_t> checkpoint);

 private:
  const absl::Duration longest_;
  int64_t left_;
  absl::Duration pause_;  // the last
  std::optional<int64_t> checkpoint_;
};

}  // namespace legoai::cli
