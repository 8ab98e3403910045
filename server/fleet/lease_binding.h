// What an agent may say of a lease that it holds: no checkpoint but what its attempt can have written, no step but what it can
// have reached. Who holds a lease is the controller's to know. gRPC-free. Thread-safety: functions of the transaction that is
// given, or pure.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/legoai/v1/job.pb.h"
#include "proto/legoai/v1/worker_service.pb.h"
#include "server/store/store.h"

namespace legoai::server {

// The folder of runs that an agent names: absolute, and in its plain form, so that paths below it can be compared as text.
// Errors: FieldError (worker.runs).
absl::Status CheckRuns(const std::string& runs);

// The folder that holds step-N of what is saved under the lease: RUNS/JOB/epoch-E/checkpoints. Errors: a lease that cannot be.
absl::StatusOr<std::string> CheckpointsOf(const std::string& runs, const v1::LeaseId& lease);

// Whether the attempt can have written the checkpoint that is to be committed. `directory` is that of CheckpointsOf.
//
// Trainers save after a step that is a multiple of checkpoint.interval, after the last one, and once more, after any step, when
// they are stopped; so nothing follows a step of the third kind. Several may arrive at once, in the order of their steps: the
// ranks go on while the server is away. True: it is new. False: it is committed already, with the same digest; the answer was
// lost. Errors: FailedPrecondition, with the reason; those of the store.
absl::StatusOr<bool> CheckCommit(store::ReadTransaction& read, const v1::Job& job, const v1::Attempt& attempt,
                                 const std::string& directory, const v1::CommitRequest& request);

// Whether the job's latest attempt can be at the step that the fact names. Errors: OutOfRange, with the reason.
absl::Status CheckStep(const v1::Job& job, const v1::Telemetry& fact);

// Of refusals of one worker, counted from 1, which are worth a line of the log: the first ten, then each time that they have
// doubled. So an agent that sends them without end fills no disk.
bool IsWorthALine(int64_t count);

}  // namespace legoai::server
