// Names, paths and texts of a line are printable (utf8.h): whoever lets one in checks it, so that nothing opens a file of another
// name than was shown, and no message moves a terminal's cursor. Thread-safety: pure functions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "proto/utf8.h"

namespace legoai {

// A FieldError unless `value` is printable.
absl::Status CheckPrintable(std::string_view field, std::string_view value);

// The same for the words of a command line.
absl::Status CheckArguments(const std::vector<std::string>& words);

}  // namespace legoai
