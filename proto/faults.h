// Several errors as one, for a file of which all that is wrong is to be said at once. Thread-safety: pure functions.
#pragma once

#include <cstddef>
#include <vector>

#include "absl/status/status.h"

namespace legoai {

// Who looks for all faults of a file stops at so many: it is another file than was meant.
inline constexpr size_t kMostFaults = 50;

// One fault is itself. Of several the message has a line each; code and violation are the first's. OK without any.
absl::Status AllFaults(const std::vector<absl::Status>& faults);

}  // namespace legoai
