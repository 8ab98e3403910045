// Errors about something that a user wrote: a Status that also carries the field as data, so that nothing that receives it parses
// text. Thread-safety: pure functions.
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
// wrong with it and what to do. The message reads `field = value: remedy`, or `field: remedy` where there is no value.
// An OK `code` makes no error and gives kInvalidArgument instead.
absl::Status FieldError(std::string_view field, std::string_view value, std::string_view remedy,
                        absl::StatusCode code = absl::StatusCode::kInvalidArgument);

// The violation that a status carries; nothing if it carries none.
std::optional<v1::FieldViolation> GetFieldViolation(const absl::Status& status);

// `status` again, with code, message and payloads, its message beginning with `context` and ": ". OK stays OK.
absl::Status Annotate(const absl::Status& status, std::string_view context);

// Several errors as one, for a file of which all that is wrong is said at once.

// Who looks for all faults of a file stops at so many: it is another file than was meant.
inline constexpr size_t kMostFaults = 50;

// One fault is itself. Of several the message has a line each; code and violation are the first's. OK without any.
absl::Status AllFaults(const std::vector<absl::Status>& faults);

// Names, paths and texts of one line are printable (proto/text.h): whoever accepts one checks it, so that no file is opened under
// another name than was shown, and no message moves a terminal's cursor.

// A FieldError unless `value` is printable.
absl::Status CheckPrintable(std::string_view field, std::string_view value);

// The same for the words of a command line.
absl::Status CheckArguments(const std::vector<std::string>& words);

}  // namespace legoai
