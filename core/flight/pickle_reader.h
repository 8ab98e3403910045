// Reads the values of a pickle file without running what it says: PyTorch's flight recorder writes pickles of protocol 2, made of
// dicts, lists, tuples, strings, integers, floats, booleans and None alone. Whatever else a pickle can hold (classes to import,
// functions to call) is refused by its opcode's name. Thread-safety: a pure function.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "absl/status/statusor.h"

namespace legoai::comm {

// Tuples become arrays, None null. Keys of dicts must be strings; what a key of the name `left_out` holds is left out. Errors:
// InvalidArgument, with the place in bytes.
absl::StatusOr<nlohmann::ordered_json> ReadPickle(const std::string& bytes, const std::string& left_out = "");

}  // namespace legoai::comm
