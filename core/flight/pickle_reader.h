// Reads the values of a pickle file without executing it: PyTorch's flight recorder writes pickles of protocol 2, made only of
// dicts, lists, tuples, strings, integers, floats, booleans and None. Anything else that a pickle can hold (classes to import,
// functions to call) is refused by its opcode's name. Thread-safety: a pure function.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "absl/status/statusor.h"

namespace legoai::comm {

// Tuples become arrays, None becomes null. Keys of dicts must be strings; the value of a key named `left_out` is skipped. Errors:
// InvalidArgument with the byte offset.
absl::StatusOr<nlohmann::ordered_json> ReadPickle(const std::string& bytes, const std::string& left_out = "");

}  // namespace legoai::comm
