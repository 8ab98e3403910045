// The one way in which a job is changed. gRPC-free. Thread-safety: functions of the transaction that is given.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "proto/legoai/v1/job.pb.h"
#include "server/store/store.h"

namespace legoai::server {

// Changes `job`, as it was read in this transaction, to `to`: next version, update time (start and end times where they fall
// due), reason, a row of the history, and where it matters to people a line of the log. `job` is the job afterwards; the caller
// may have changed other fields of it before. Errors: FailedPrecondition for a state that may not follow; those of
// Transaction::UpdateJob.
absl::Status Move(store::Transaction& transaction, v1::Job* job, v1::JobState to, std::string_view reason, int64_t now_us);

// What a reader of the job's log looks for beside what its agent and trainers say: what it is planned for, where it runs, and why
// it does not any more. That trainers are started, and train, is said by the agent. Move() does it.
absl::Status AppendStateLine(store::Transaction& transaction, const v1::Job& job, int64_t now_us);

// Stores other changes of `job` (progress, reason, queue position) under its next version, without a row of the history.
absl::Status Touch(store::Transaction& transaction, v1::Job* job, int64_t now_us);

// The state machine of a job: which state may follow which. gRPC-free. Thread-safety: pure functions.

// Succeeded, failed, cancelled: nothing follows.
bool IsFinal(v1::JobState state);
// Has slots, or may still have them: leased, starting, running, cancelling.
bool HoldsLease(v1::JobState state);
bool MayFollow(v1::JobState from, v1::JobState to);
std::vector<v1::JobState> ActiveStates();   // all that are not final
std::string StateText(v1::JobState state);  // "queued"

}  // namespace legoai::server
