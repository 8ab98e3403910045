// Where the attempts of a job write: RUNS/JOB/epoch-E is the run directory of the attempt of epoch E only, so a rank of an older
// epoch that is still running, because its agent was stopped or its host cut off, can do no harm. RUNS/JOB/tokens is shared, as
// its files are named by their contents. RUNS is on a file system that all workers of the pool share. Thread-safety: functions of
// the file system.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/legoai/v1/worker_service.pb.h"

namespace legoai::agent {

// The run directory of a lease; the job's folder has the last part of its resource name. Errors: a name or an epoch that would
// lead outside `runs`.
absl::StatusOr<std::string> EpochDirectory(const std::string& runs, const v1::LeaseId& lease);

// Creates it. Errors: FieldError (--runs) if it cannot be created; ResourceExhausted: the disk is full.
absl::Status MakeEpochDirectory(const std::string& directory);

// Removes the checkpoints of all earlier epochs of the job, from where its recipe keeps them: newer ones of this epoch replace
// them. Logs, metrics, exports and checkpoints put aside as damaged stay. Returns the first error; the others are removed all the
// same.
absl::Status RemoveEarlierCheckpoints(const std::string& runs, const v1::Recipe& recipe, const v1::LeaseId& lease);

}  // namespace legoai::agent
