// Errors about something that a user wrote: a Status that also carries the field as data, so that nothing that
// receives it parses text. Thread-safety: pure functions.
#pragma once

#include <optional>
#include <string_view>

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

}  // namespace legoai
