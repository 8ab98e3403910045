// Messages as trees of plain values, by reflection over descriptors (decisions 17). JSON, TOML and YAML are texts of this tree;
// what may be written, and what is refused, is decided here once.
//
// A message is an object with its keys in the order of the proto file, unset fields that know absence are null, zeros are there;
// enum values are their `(text)` (null for X_UNSPECIFIED without one), bytes are base64, maps are objects with sorted keys.
// Thread-safety: pure functions. Torch-free.
#pragma once

#include <google/protobuf/message.h>

#include <nlohmann/json.hpp>
#include <string>

#include "absl/status/status.h"

namespace legoai {

using Tree = nlohmann::ordered_json;

Tree ToTree(const google::protobuf::Message& message);

// The value of one field of `message`; null if it is unset and knows absence.
Tree ToTree(const google::protobuf::Message& message, const google::protobuf::FieldDescriptor* field);

// Sets in `message` what `tree` says, field by field; null leaves a field unset, lists and maps are replaced. An unknown key, a
// value of another type or out of the field's range, and two members of one oneof are errors with a FieldViolation whose field is
// the dotted path; `message` is then half set: give a copy.
absl::Status MergeTree(const Tree& tree, google::protobuf::Message* message);

// Sets the one field that the dotted `path` names from text as it would be written after `--path=`: text without quotes, lists
// with commas.
absl::Status MergeText(const std::string& path, const std::string& text, google::protobuf::Message* message);

}  // namespace legoai
