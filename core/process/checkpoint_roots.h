// Where jobs of the service may keep their checkpoints: an operator's list, because the checkpoint.folder of a job is whoever's
// wish who may submit one, and the keys of an agent may open more than that. Thread-safety: functions of the file system.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/legoai/v1/recipe.pb.h"

namespace legoai::launch {

// What --checkpoint_roots names: folders, made absolute, and s3://BUCKET or s3://BUCKET/PREFIX, without a slash at the end.
// Errors, of that field: a file; another URL.
absl::StatusOr<std::vector<std::string>> ParseCheckpointRoots(const std::vector<std::string>& roots);

// Checks that a training by `recipe` in this run directory keeps its checkpoints below one of `roots`; any place will do if there
// are none, or if it keeps no checkpoints. Errors: PermissionDenied, of checkpoint.folder, or of job.dump_folder where the recipe
// has none.
absl::Status CheckCheckpointRoots(const v1::Recipe& recipe, const std::string& run_directory,
                                  const std::vector<std::string>& roots);

}  // namespace legoai::launch
