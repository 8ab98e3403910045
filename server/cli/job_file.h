// JOB.toml, the file to submit: the sections of a recipe (docs/recipe.md) plus [resources], [planning] and [policy]
// (proto/legoai/v1/job.proto). Thread-safety: safe to call from several threads.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "core/recipe/recipe.h"
#include "proto/legoai/v1/job.pb.h"

namespace legoai::cli {

// The spec of the file `path`, overridden by keys of the command line ("training.steps", "resources.slots"). Reads the model;
// makes paths absolute; sets the dataset's size and digest if the file is visible on this host. Fields missing in the file are
// left to the server's defaults. Errors: FieldErrors with keys as in the file; NotFound for a file that cannot be read.
absl::StatusOr<v1::JobSpec> ReadJobFile(const std::string& path, const parallel::Overrides& overrides);

// Only the contents of the file: reads no other file, and missing fields stay unset.
absl::StatusOr<v1::JobSpec> ParseJobFile(const std::string& path, const parallel::Overrides& overrides);

// The key of JOB.toml for the field "spec...." in a server's error.
std::string KeyOf(const std::string& request_field);

}  // namespace legoai::cli
