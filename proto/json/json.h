// Messages as JSON text, by the rules of reflect.h. Thread-safety: pure functions.
#pragma once

#include <google/protobuf/message.h>

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/json/reflect.h"

namespace legoai {

// `indent` spaces per level; -1: one line. Non-finite numbers become null. No line break at the end.
std::string ToJson(const google::protobuf::Message& message, int indent = 2);

// `text` as a tree. Errors name the line of invalid JSON, or the path of a duplicate key or of too deep nesting.
absl::StatusOr<Tree> ParseJsonTree(std::string_view text);

// Replaces `message` by the contents of `text`; on an error, which names the field, `message` is unchanged.
absl::Status ParseJson(std::string_view text, google::protobuf::Message* message);

}  // namespace legoai
