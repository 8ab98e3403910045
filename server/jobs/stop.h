// Stops of running jobs: to cancel them, and to move them to other slots. A stop is kept in the job (Job.stop), so that it goes
// on after the server was started anew; the controller tells the agent. gRPC-free. Thread-safety: functions of the given
// transaction.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/legoai/v1/control_plane.pb.h"
#include "proto/legoai/v1/job.pb.h"
#include "server/store/store.h"

namespace legoai::server {

// How long trainers may take to save when nobody has said.
inline constexpr absl::Duration kDefaultStopGrace = absl::Seconds(60), kLongestStopGrace = absl::Hours(24);

// `seconds` as a request has them; 0: kDefaultStopGrace. Errors: FieldError if it is negative, no number, or more than a day.
absl::StatusOr<absl::Duration> StopGrace(std::string_view field, double seconds);

// Cancels `job`, as read in this transaction: at once if it has no lease; else it is cancelling, and saves first if the request
// says so, in the time that this request gives; one whose time to save is over, since it was being moved, does not save any more.
// Of a job that is cancelling already, another request only ends the save. False: nothing was changed. Errors: those of
// StopGrace and Move.
absl::StatusOr<bool> CancelJob(store::Transaction& transaction, const v1::CancelJobRequest& request, int64_t now_us,
                               v1::Job* job);

// Asks the trainers of `job`, which has a lease and is not cancelling, to save and give up their slots. False, and nothing is
// changed, if they have been asked already.
absl::StatusOr<bool> AskToMove(store::Transaction& transaction, std::string_view why, absl::Duration grace, int64_t now_us,
                               v1::Job* job);

// Moves `job` on after its attempt, already stored, has stopped as asked: to cancelled, or to queued, which counts as no restart.
// `last_step`: of the attempt.
absl::Status AfterStop(store::Transaction& transaction, int64_t last_step, int64_t now_us, v1::Job* job);

// Ends a job that is cancelling and whose attempt failed with `error`, or was lost, before it stopped.
absl::Status AfterFailedStop(store::Transaction& transaction, const absl::Status& error, int64_t now_us, v1::Job* job);

}  // namespace legoai::server
