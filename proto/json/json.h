// Messages as JSON: the rules of reflect.h, as text. Thread-safety: pure functions.
#pragma once

#include <google/protobuf/message.h>

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/json/reflect.h"

namespace legoai {

// `indent` spaces per level; -1: one line. Numbers that are not finite are null. No line break at the end.
std::string ToJson(const google::protobuf::Message& message, int indent = 2);

// `text` as a tree. Errors name the line of what is no JSON, the path of a key that an object has twice, and that of what is
// nested too deep.
absl::StatusOr<Tree> ParseJsonTree(std::string_view text);

// Replaces `message` by what `text` says; on an error, which names the field, `message` stays as it was.
absl::Status ParseJson(std::string_view text, google::protobuf::Message* message);

}  // namespace legoai
