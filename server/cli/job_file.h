// JOB.toml: what is submitted. The sections of a recipe (docs/recipe.md) beside [resources], [planning] and [policy]
// (proto/legoai/v1/job.proto). Thread-safety: safe to call from several threads.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "core/recipe/recipe.h"
#include "proto/legoai/v1/job.pb.h"

namespace legoai::cli {

// The spec of the file `path`, with keys of the command line, which win over it ("training.steps", "resources.slots"). The model
// is read here; paths become absolute; the dataset's size and digest are taken where the file is visible here, and left unset
// where it is not. Whatever the file does not say is left to the server's defaults. Errors: FieldErrors with keys as the file has
// them; NotFound for a file that cannot be read.
absl::StatusOr<v1::JobSpec> ReadJobFile(const std::string& path, const parallel::Overrides& overrides);

// The same as the file says it: no other file is read, and what it does not say is unset.
absl::StatusOr<v1::JobSpec> ParseJobFile(const std::string& path, const parallel::Overrides& overrides);

// The key of JOB.toml that a server's error about "spec...." means.
std::string KeyOf(const std::string& request_field);

}  // namespace legoai::cli
