// Messages as trees of plain values, by reflection over descriptors. JSON, TOML and YAML are texts of this tree; what is accepted
// and what is refused is decided only here.
//
// A message is an object with its keys in the order of the proto file, unset fields with presence are null, zeros are included;
// enum values are their `(text)` (null for X_UNSPECIFIED without one), bytes are base64, maps are objects with sorted keys;
// messages with `(written_as_list)` are the list that is their only field. Thread-safety: pure functions.
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

// Maximum nesting of objects and lists, as code that walks a tree is recursive.
inline constexpr int kMostNesting = 100;

Tree ToTree(const google::protobuf::Message& message);

// The value of one field of `message`; null if it has presence and is unset.
Tree ToTree(const google::protobuf::Message& message, const google::protobuf::FieldDescriptor* field);

// Sets the fields of `tree` in `message`; null leaves a field unset, lists and maps are replaced. An unknown key, a value of
// another type or out of range, and two members of one oneof are errors with a FieldViolation whose field is the dotted path;
// `message` is then partly set, so pass a copy.
absl::Status MergeTree(const Tree& tree, google::protobuf::Message* message);

// MergeTree that continues after errors: a wrong key (for a list, the whole list) is skipped and reported. Stops at kMostFaults.
std::vector<absl::Status> MergeTreeApartFromFaults(const Tree& tree, google::protobuf::Message* message);

// Sets the field named by the dotted `path` from text as written after `--path=`: text without quotes, lists separated by commas,
// lists of lists by semicolons.
absl::Status MergeText(const std::string& path, const std::string& text, google::protobuf::Message* message);

// Whether `text` is an integer of any size.
bool IsWholeNumber(std::string_view text);

// The remedy for a number out of range: "is too large: must lie between 1 and 5", or "is too small: ...".
std::string OutOfRangeText(bool too_small, int64_t least, uint64_t most);

}  // namespace legoai
