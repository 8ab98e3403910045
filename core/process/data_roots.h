// The folders from which jobs of the service may read: an operator's list, because paths in a job are untrusted. Thread-safety:
// functions of the file system.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "proto/legoai/v1/recipe.pb.h"

namespace legoai::launch {

// The label of a worker (worker.proto) with its folders, separated by commas: what a host's agent would refuse, a server on the
// same host can already refuse at submission.
inline constexpr char kDataRootsLabel[] = "data_roots";

// Whether `path` lies in one of these folders after following every link; what does not exist is taken as it is written.
bool LiesInAny(const std::string& path, const std::vector<std::string>& roots);

// Where an agent's jobs may read by default: its working folder, unless that is the root of the file system, and the examples
// shipped with the program.
std::vector<std::string> DefaultDataRoots();

// Checks that what `recipe` opens (text, tokenizer, and initial weights with all files of their folder) lies below one of `roots`
// after following every link. Errors (PermissionDenied, fields as in the recipe) do not reveal whether the file exists.
absl::Status CheckDataRoots(const v1::Recipe& recipe, const std::vector<std::string>& roots);

}  // namespace legoai::launch
