// Which failures are worth another attempt, which of them count, and how long the job waits before it tries again: the table that
// docs/operations.md shows. gRPC-free. Thread-safety: pure functions.
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

// Why an attempt has ended before its time.
enum class FailureCause {
  kWorkerLost,            // its agent is silent, or has come back without its trainers
  kWorkerLeaves,          // its agent was told to end
  kCheckpointDamaged,     // the checkpoint that it was to resume from does not load
  kOwnCheckpointDamaged,  // one that it has saved itself cannot be read back
  kTrainers,              // the trainers, or what they needed, with a status of their own
};

struct FailureRule {
  FailureCause cause;
  absl::StatusCode code;  // of kTrainers
  bool again;             // another attempt may do better
  bool counted;           // against policy.max_restarts, and waited after
};

// What is not in it would only fail again: something is wrong with the job itself, or with what its host has for it.
inline constexpr FailureRule kFailureRules[] = {
    {FailureCause::kWorkerLost, absl::StatusCode::kOk, true, false},
    {FailureCause::kWorkerLeaves, absl::StatusCode::kOk, true, false},
    {FailureCause::kCheckpointDamaged, absl::StatusCode::kOk, true, false},
    {FailureCause::kOwnCheckpointDamaged, absl::StatusCode::kOk, true, true},
    {FailureCause::kTrainers, absl::StatusCode::kUnavailable, true, true},       // a rank died
    {FailureCause::kTrainers, absl::StatusCode::kDeadlineExceeded, true, true},  // a rank hangs
    {FailureCause::kTrainers, absl::StatusCode::kAborted, true, true},           // it is not known whether a checkpoint counts
};

// `code` matters for kTrainers alone.
FailureRule RuleOf(FailureCause cause, absl::StatusCode code);

// Before the next attempt, after that many counted failures in a row without a new checkpoint: 1 s, 4 s, 16 s, 64 s, 256 s, then
// kLongestBackOff each time. None after a failure that followed a new checkpoint. The same between checkpoints that are found
// damaged one after the other, from the second on.
inline constexpr absl::Duration kLongestBackOff = absl::Minutes(5);
absl::Duration BackOff(int64_t failures);

// What is left of a wait until `not_before_us`, microseconds UTC; 0: none. A wait longer than any can be is none: the clock was
// set back.
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
  std::string reason;  // what has happened, in the words that the job is to say it with
};

// What becomes of a job whose attempt has ended with `error`; with max_restarts = 0 no counted failure is tried again.
// `without_progress`: its counted failures without a new checkpoint since, this one included if it is counted, the latest last.
//
// Failures with the same error at the same last step are called so, and change nothing else: a disk that is away fails attempts
// at the same step too, and how often to try is the job's to say.
NextAttempt JudgeFailure(FailureCause cause, const absl::Status& error, const std::vector<Failure>& without_progress,
                         int64_t max_restarts);

// What becomes of a job whose attempt has failed, been lost, or was given up: it restarts, at once or later, or has failed.
// gRPC-free. Thread-safety: functions of the transaction that is given.

// Moves `job` on, whose latest attempt is stored as it has ended, with `error`. One that was asked to end is cancelled instead.
absl::Status AfterFailure(store::Transaction& transaction, v1::Job* job, FailureCause cause, const absl::Status& error,
                          int64_t now_us);

// Where `point` has no whole checkpoint: `job` has failed, with `reason` before what is said of them where it is not empty.
absl::Status FailAsNoneIsWhole(store::Transaction& transaction, v1::Job* job, const ResumePoint& point, std::string_view reason,
                               int64_t now_us);

}  // namespace legoai::server
