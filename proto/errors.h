// Errors about user input: a Status that also carries the field as data, so that no receiver has to parse text. Thread-safety:
// pure functions.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "proto/legoai/v1/error.pb.h"

namespace legoai {

// `field` as the user wrote it ("training.seq_len", "--cluster", "config.json: hidden_size"), `value` as text, `remedy` what is
// wrong with it and what to do. The message reads `field = value: remedy`, or `field: remedy` without a value. An OK `code` is
// replaced by kInvalidArgument.
absl::Status FieldError(std::string_view field, std::string_view value, std::string_view remedy,
                        absl::StatusCode code = absl::StatusCode::kInvalidArgument);

// The violation that a status carries; nothing if it carries none.
std::optional<v1::FieldViolation> GetFieldViolation(const absl::Status& status);

// `status` with its message prefixed with `context` and ": "; code and payloads are kept. OK stays OK.
absl::Status Annotate(const absl::Status& status, std::string_view context);

// Combines several errors, so that everything wrong with a file is reported at once.

// Searches for faults stop at this number: a file with more is probably the wrong file.
inline constexpr size_t kMostFaults = 50;

// A single fault is returned unchanged. For several, the message has one line each; code and violation are the first's. OK
// without faults.
absl::Status AllFaults(const std::vector<absl::Status>& faults);

// Names, paths and texts of one line are printable (proto/text.h): code that accepts one checks it, so that no file is opened
// under a name other than the one shown, and no message moves a terminal's cursor.

// A FieldError unless `value` is printable.
absl::Status CheckPrintable(std::string_view field, std::string_view value);

// The same for the words of a command line.
absl::Status CheckArguments(const std::vector<std::string>& words);

}  // namespace legoai
