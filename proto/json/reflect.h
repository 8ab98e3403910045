// Messages as trees of plain values, by reflection over descriptors. JSON, TOML and YAML are texts of this tree;
// what may be written, and what is refused, is decided here once.
//
// A message is an object with its keys in the order of the proto file, unset fields that know absence are null, zeros are there;
// enum values are their `(text)` (null for X_UNSPECIFIED without one), bytes are base64, maps are objects with sorted keys;
// messages with `(written_as_list)` are the list that is their only field.
// Thread-safety: pure functions.
#pragma once

#include <google/protobuf/message.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"

namespace legoai {

using Tree = nlohmann::ordered_json;

// Objects and lists may lie in each other so deep: what goes through a tree calls itself for each level.
inline constexpr int kMostNesting = 100;

Tree ToTree(const google::protobuf::Message& message);

// The value of one field of `message`; null if it is unset and knows absence.
Tree ToTree(const google::protobuf::Message& message, const google::protobuf::FieldDescriptor* field);

// Sets in `message` what `tree` says, field by field; null leaves a field unset, lists and maps are replaced. An unknown key, a
// value of another type or out of the field's range, and two members of one oneof are errors with a FieldViolation whose field is
// the dotted path; `message` is then half set: give a copy.
absl::Status MergeTree(const Tree& tree, google::protobuf::Message* message);

// MergeTree that goes on: a key at fault, of a list the whole list, is left out, and each is an error. Stops at kMostFaults.
std::vector<absl::Status> MergeTreeApartFromFaults(const Tree& tree, google::protobuf::Message* message);

// Sets the one field that the dotted `path` names from text as it would be written after `--path=`: text without quotes, lists
// with commas, lists of lists with semicolons between them.
absl::Status MergeText(const std::string& path, const std::string& text, google::protobuf::Message* message);

// Whether `text` is written as a whole number, of whatever size.
bool IsWholeNumber(std::string_view text);

// What is said of a number out of its range: "is too large: must lie between 1 and 5", or "is too small: ...".
std::string OutOfRangeText(bool too_small, int64_t least, uint64_t most);

}  // namespace legoai
