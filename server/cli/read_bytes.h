// Sizes as people write them on a command line. Torch-free. Thread-safety: a pure function.
#pragma once

#include <optional>

#include "absl/strings/string_view.h"

namespace legoai::cli {

// Bytes of "4GiB", "512 MiB", "1.5e9", or of "10%" as a share of `whole`. Units are binary, B to TiB. Nothing for other text, and
// for numbers that are negative or not finite.
std::optional<double> ReadBytes(absl::string_view text, double whole);

}  // namespace legoai::cli
