// Where the attempts at a job write: RUNS/JOB/epoch-E is the run directory of the attempt under epoch E, and of no other. So a
// rank of an older epoch that runs on, because its agent was stopped or its host cut off, can spoil nothing. RUNS/JOB/tokens is
// shared: its files are named by what is in them. RUNS lies on a file system that all workers of the pool see.
// Thread-safety: functions of the file system.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/legoai/v1/worker_service.pb.h"

namespace legoai::agent {

// The run directory of a lease; the job's folder is called as the last part of its resource name. Errors: a name or an epoch that
// would lead elsewhere.
absl::StatusOr<std::string> EpochDirectory(const std::string& runs, const v1::LeaseId& lease);

// Makes it. Errors: FieldError (--runs) where it cannot be made; ResourceExhausted: the disk is full.
absl::Status MakeEpochDirectory(const std::string& directory);

// Removes the checkpoints of all earlier epochs of the job: newer ones of this epoch are committed in their place. Logs, metrics,
// exports and checkpoints that were put aside as damaged stay. The error is the first; others are removed all the same.
absl::Status RemoveEarlierCheckpoints(const std::string& runs, const v1::LeaseId& lease);

}  // namespace legoai::agent
