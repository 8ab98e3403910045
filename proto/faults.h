// Several errors as one, for a file of which all that is wrong is to be said at once. Torch-free. Thread-safety: pure functions.
#pragma once

#include <vector>

#include "absl/status/status.h"

namespace legoai {

// One fault is itself. Of several the message has a line each; code and violation are the first's. OK without any.
absl::Status AllFaults(const std::vector<absl::Status>& faults);

}  // namespace legoai
