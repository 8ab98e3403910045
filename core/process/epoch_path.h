// Where an attempt at a job of the service writes. Agents make the folder, and the server takes a checkpoint from no other.
// Torch-free. Thread-safety: a pure function.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace legoai::launch {

// "RUNS/ID/epoch-E": the run directory of the attempt under an epoch. ID is the last part of the job's resource name. Errors: a
// name or an epoch that would lead elsewhere.
absl::StatusOr<std::string> EpochPath(const std::string& runs, const std::string& job, int64_t epoch);

}  // namespace legoai::launch
