// Messages as TOML: sections are messages, keys are fields, with the rules of proto/json/reflect.h. TOML
// has no null: what is unset is left out. Thread-safety: pure functions.
#pragma once

#include <google/protobuf/message.h>

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"

namespace legoai {

// Keys in the order of the proto file, sections after the plain keys above them.
std::string ToToml(const google::protobuf::Message& message);

// Replaces `message` by what `text` says; on an error, which names the field or the line, `message` stays as it was.
absl::Status ParseToml(std::string_view text, google::protobuf::Message* message);

// The same for all that is wrong: `message` becomes what the keys without fault say, and each of the others is an error of its
// own, by section. Text that is no TOML is one error, and `message` stays as it was.
std::vector<absl::Status> ReadToml(std::string_view text, google::protobuf::Message* message);

// Sets one key as the command line does: `--training.local_batch_size=2` is ("training.local_batch_size", "2"). Text stands
// without quotes, lists with commas. On an error `message` stays as it was.
absl::Status ApplyOverride(google::protobuf::Message* message, const std::string& path, const std::string& value);

}  // namespace legoai
