// Messages as TOML: sections are messages, keys are fields, with the rules of proto/json/reflect.h. TOML has no null: unset
// fields are omitted. Thread-safety: pure functions.
#pragma once

#include <google/protobuf/message.h>

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"

namespace legoai {

// Keys in the order of the proto file, sections after the plain keys above them.
std::string ToToml(const google::protobuf::Message& message);

// Replaces `message` by the contents of `text`; on an error, which names the field or the line, `message` is unchanged.
absl::Status ParseToml(std::string_view text, google::protobuf::Message* message);

// The same with all errors: `message` gets the valid keys, and each wrong key is a separate error, by section. Invalid TOML is
// one error, and `message` is unchanged.
std::vector<absl::Status> ReadToml(std::string_view text, google::protobuf::Message* message);

// Sets one key as the command line does: `--training.local_batch_size=2` is ("training.local_batch_size", "2"). Text has no
// quotes, lists use commas. On an error `message` is unchanged.
absl::Status ApplyOverride(google::protobuf::Message* message, const std::string& path, const std::string& value);

}  // namespace legoai
