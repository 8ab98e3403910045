// The folders from which jobs of the service may read: an operator's list, for a path in a job is somebody else's wish.
// Thread-safety: functions of the file system.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "proto/legoai/v1/recipe.pb.h"

namespace legoai::launch {

// The label of a worker (worker.proto) that has its folders, with commas between them: what the agent of a host would refuse, a
// server on the same host can refuse when a job is submitted.
inline constexpr char kDataRootsLabel[] = "data_roots";

// Where an agent's jobs may read unless its operator says otherwise: its working folder, if that is not the whole file system,
// and the examples that came with the program.
std::vector<std::string> DefaultDataRoots();

// What `recipe` has opened, its text, tokenizer and initial weights with all files of their folder, lies in one of `roots` (or
// below) once every link is followed. Errors (PermissionDenied, fields as in the recipe) do not tell whether the file is there.
absl::Status CheckDataRoots(const v1::Recipe& recipe, const std::vector<std::string>& roots);

}  // namespace legoai::launch
