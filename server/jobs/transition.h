// The only way to change a job. gRPC-free. Thread-safety: functions of the given transaction.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "proto/legoai/v1/job.pb.h"
#include "server/store/store.h"

namespace legoai::server {

// Moves `job`, as read in this transaction, to state `to`: next version, update time (start and end times when due), reason, a
// row of the history, and for states relevant to users a line of the log. Updates `job`, of which the caller may have changed
// other fields before. Errors: FailedPrecondition for a state that may not follow; those of Transaction::UpdateJob.
absl::Status Move(store::Transaction& transaction, v1::Job* job, v1::JobState to, std::string_view reason, int64_t now_us);

// Adds to the job's log what agent and trainers do not report: what it is planned for, where it runs, and why it stopped running.
// The agent reports that trainers start and train. Called by Move().
absl::Status AppendStateLine(store::Transaction& transaction, const v1::Job& job, int64_t now_us);

// Stores other changes of `job` (progress, reason, queue position) as its next version, without a row of the history.
absl::Status Touch(store::Transaction& transaction, v1::Job* job, int64_t now_us);

// The state machine of jobs: which state may follow which. gRPC-free. Thread-safety: pure functions.

// Succeeded, failed, cancelled: nothing follows.
bool IsFinal(v1::JobState state);
// Has slots, or may still have them: leased, starting, running, cancelling.
bool HoldsLease(v1::JobState state);
bool MayFollow(v1::JobState from, v1::JobState to);
std::vector<v1::JobState> ActiveStates();   // all that are not final
std::string StateText(v1::JobState state);  // "queued"

}  // namespace legoai::server
