// Which failures are retried, which of them count, and how long the job waits before the next attempt: the table in
// docs/operations.md. gRPC-free. Thread-safety: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "proto/legoai/v1/job.pb.h"
#include "server/fleet/resume_point.h"
#include "server/store/store.h"

namespace legoai::server {

// Why an attempt ended early.
enum class FailureCause {
  kWorkerLost,            // its agent is silent, or has reconnected without its trainers
  kWorkerLeaves,          // its agent was stopped
  kCheckpointDamaged,     // the checkpoint to resume from does not load
  kOwnCheckpointDamaged,  // a checkpoint that it has saved itself cannot be read back
  kTrainers,              // the trainers or their resources, with their own status
};

struct FailureRule {
  FailureCause cause;
  absl::StatusCode code;  // of kTrainers
  bool again;             // another attempt may succeed
  bool counted;           // against policy.max_restarts, and followed by a back-off
};

// Any other failure would only repeat: something is wrong with the job itself or with its host.
inline constexpr FailureRule kFailureRules[] = {
    {FailureCause::kWorkerLost, absl::StatusCode::kOk, true, false},
    {FailureCause::kWorkerLeaves, absl::StatusCode::kOk, true, false},
    {FailureCause::kCheckpointDamaged, absl::StatusCode::kOk, true, false},
    {FailureCause::kOwnCheckpointDamaged, absl::StatusCode::kOk, true, true},
    {FailureCause::kTrainers, absl::StatusCode::kUnavailable, true, true},       // a rank died
    {FailureCause::kTrainers, absl::StatusCode::kDeadlineExceeded, true, true},  // a rank hangs
    {FailureCause::kTrainers, absl::StatusCode::kAborted, true, true},           // unknown whether a checkpoint was committed
};

// `code` matters only for kTrainers.
FailureRule RuleOf(FailureCause cause, absl::StatusCode code);

// The wait before the next attempt after this many consecutive counted failures without a new checkpoint: 1 s, 4 s, 16 s, 64 s,
// 256 s, then kLongestBackOff. None after a failure that followed a new checkpoint. The same applies to checkpoints found damaged
// one after another, from the second on.
inline constexpr absl::Duration kLongestBackOff = absl::Minutes(5);
absl::Duration BackOff(int64_t failures);

// The remaining wait until `not_before_us`, microseconds UTC; 0: none. An impossibly long wait counts as none, because the clock
// was set back.
absl::Duration BackOffLeft(int64_t not_before_us, int64_t now_us);

// A counted failure of trainers.
struct Failure {
  absl::Status error;
  int64_t last_step = 0;
  bool operator==(const Failure&) const = default;
};

struct NextAttempt {
  bool again = false;  // else the job has failed
  absl::Duration wait;
  std::string reason;  // what happened, as the job's reason
};

// Decides about a job whose attempt has ended with `error`; with max_restarts = 0 no counted failure is retried.
// `without_progress`: its counted failures since the last new checkpoint, including this one if it is counted, latest last.
//
// Repeated failures with the same error at the same last step are mentioned in the reason but not treated differently: an
// unavailable disk fails attempts at the same step too, and the job's policy decides how often to retry.
NextAttempt JudgeFailure(FailureCause cause, const absl::Status& error, const std::vector<Failure>& without_progress,
                         int64_t max_restarts);

// State changes of a job whose attempt has failed, been lost or abandoned: it restarts, at once or later, or fails. gRPC-free.
// Thread-safety: functions of the given transaction.

// Moves `job` to its next state after its latest attempt, already stored, ended with `error`. A job that is being cancelled
// becomes cancelled instead.
absl::Status AfterFailure(store::Transaction& transaction, v1::Job* job, FailureCause cause, const absl::Status& error,
                          int64_t now_us);

// Fails `job` because `point` has no intact checkpoint; the text about them follows `reason`, if that is not empty.
absl::Status FailAsNoneIsWhole(store::Transaction& transaction, v1::Job* job, const ResumePoint& point, std::string_view reason,
                               int64_t now_us);

}  // namespace legoai::server
