#include "server/fleet/failure_policy.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "proto/rpc.h"
#include "proto/status.h"
#include "proto/text.h"
#include "server/jobs/stop.h"
#include "server/jobs/transition.h"

namespace legoai::server {
namespace {

constexpr absl::Duration kFirstBackOff = absl::Seconds(1);
constexpr int64_t kGrowth = 4;

// How many of the latest failures are the same as the last one.
int64_t Repeats(const std::vector<Failure>& without_progress) {
  const auto other = std::find_if(without_progress.rbegin(), without_progress.rend(),
                                  [&](const Failure& one) { return !(one == without_progress.back()); });
  return other - without_progress.rbegin();
}

// "fails at step 123 every time: rank 1 died", where the last failures were the same.
std::string WhatHappened(const absl::Status& error, const std::vector<Failure>& without_progress) {
  if (Repeats(without_progress) < 2) return std::string(error.message());
  return absl::StrCat("fails at step ", without_progress.back().last_step, " every time: ", error.message());
}

absl::Status Fail(store::Transaction& transaction, v1::Job* job, const absl::Status& error, std::string_view reason,
                  int64_t now_us) {
  *job->mutable_outcome()->mutable_error() = ToRpcStatus(error);
  return Move(transaction, job, v1::FAILED, reason, now_us);
}

FailureCause CauseOfFailed(const v1::Attempt& attempt) {
  if (!attempt.has_damage()) return FailureCause::kTrainers;
  return DamagedItsOwn(attempt) ? FailureCause::kOwnCheckpointDamaged : FailureCause::kCheckpointDamaged;
}

// Attempts that have found what they were to go on from damaged, with nothing between them, the latest among them.
int64_t DamagedInARow(const std::vector<v1::Attempt>& attempts) {
  const auto other = std::find_if(attempts.rbegin(), attempts.rend(),
                                  [](const v1::Attempt& one) { return !one.has_damage() || DamagedItsOwn(one); });
  return other - attempts.rbegin();
}

// The counted failures since the last new checkpoint. One that is damaged was no progress.
absl::StatusOr<std::vector<Failure>> FailuresWithoutProgress(store::Transaction& transaction, const v1::Job& job,
                                                             const std::vector<v1::Attempt>& attempts) {
  ASSIGN_OR_RETURN(const auto checkpoints, transaction.ListKeptCheckpoints(job.name()));
  int64_t last_progress = 0;
  for (const v1::Checkpoint& one : checkpoints) {
    if (one.damage().empty()) last_progress = std::max(last_progress, one.attempt());
  }
  std::vector<Failure> failures;
  for (const v1::Attempt& attempt : attempts) {
    if (attempt.attempt() <= last_progress || attempt.state() != "failed") continue;
    const absl::Status error = FromRpcStatus(attempt.error());
    if (RuleOf(CauseOfFailed(attempt), error.code()).counted) failures.push_back({error, attempt.last_step()});
  }
  return failures;
}

}  // namespace

FailureRule RuleOf(FailureCause cause, absl::StatusCode code) {
  for (const FailureRule& rule : kFailureRules) {
    if (rule.cause == cause && (cause != FailureCause::kTrainers || rule.code == code)) return rule;
  }
  return {cause, code, false, false};
}

absl::Duration BackOff(int64_t failures) {
  if (failures < 1) return absl::ZeroDuration();
  absl::Duration wait = kFirstBackOff;
  for (int64_t i = 1; i < failures && wait < kLongestBackOff; ++i) wait *= kGrowth;
  return std::min(wait, kLongestBackOff);
}

absl::Duration BackOffLeft(int64_t not_before_us, int64_t now_us) {
  const absl::Duration left = absl::FromUnixMicros(not_before_us) - absl::FromUnixMicros(now_us);
  return left > absl::ZeroDuration() && left <= kLongestBackOff ? left : absl::ZeroDuration();
}

NextAttempt JudgeFailure(FailureCause cause, const absl::Status& error, const std::vector<Failure>& without_progress,
                         int64_t max_restarts) {
  const FailureRule rule = RuleOf(cause, error.code());
  if (!rule.again || !rule.counted) return {rule.again, absl::ZeroDuration(), std::string(error.message())};
  const int64_t failures = without_progress.size();
  const std::string what = WhatHappened(error, without_progress);
  if (failures > max_restarts || max_restarts == 0) {
    const std::string vain = failures <= 1 ? "an attempt has failed"
                                           : absl::StrCat(failures, " attempts in a row have failed without a new checkpoint");
    return {false, absl::ZeroDuration(), absl::StrCat(vain, ", and policy.max_restarts is ", max_restarts, ": ", what)};
  }
  return {true, BackOff(failures), what};
}

absl::Status FailAsNoneIsWhole(store::Transaction& transaction, v1::Job* job, const ResumePoint& point, std::string_view reason,
                               int64_t now_us) {
  const absl::Status lost = absl::DataLossError(NoneIsWholeText(point));
  const std::string text(lost.message());
  return Fail(transaction, job, lost, reason.empty() ? text : absl::StrCat(std::string(reason), "; ", text), now_us);
}

absl::Status AfterFailure(store::Transaction& transaction, v1::Job* job, FailureCause cause, const absl::Status& error,
                          int64_t now_us) {
  if (job->state() == v1::CANCELLING) return AfterFailedStop(transaction, error, now_us, job);
  job->clear_stop();  // it was to give its slots up, which it has
  ASSIGN_OR_RETURN(const auto attempts, transaction.ListAttempts(job->name()));
  ASSIGN_OR_RETURN(const auto without_progress, FailuresWithoutProgress(transaction, *job, attempts));
  const int64_t allowed = job->spec().policy().max_restarts();
  NextAttempt next = JudgeFailure(cause, error, without_progress, allowed);
  const bool uncounted_damage = cause == FailureCause::kCheckpointDamaged;
  // One bad disk must not use up all checkpoints within seconds.
  if (uncounted_damage) next.wait = BackOff(DamagedInARow(attempts) - 1);
  if (!next.again) return Fail(transaction, job, error, next.reason, now_us);
  ASSIGN_OR_RETURN(const auto from, FindResumePoint(transaction, *job));
  if (from.NoneIsWhole()) return FailAsNoneIsWhole(transaction, job, from, next.reason, now_us);
  std::string reason = absl::StrCat(next.reason, "; ", GoesOnText(*job, from.checkpoint));
  job->clear_not_before_time_us();
  if (next.wait > absl::ZeroDuration()) {
    job->set_not_before_time_us(now_us + absl::ToInt64Microseconds(next.wait));
    absl::StrAppend(&reason, " in ", DurationText(next.wait));
    if (!uncounted_damage)
      absl::StrAppend(&reason, " (restart ", without_progress.size(), " of ", allowed, " without a new checkpoint)");
  }
  job->set_restarts(job->restarts() + 1);
  return Move(transaction, job, v1::RESTARTING, reason, now_us);
}

}  // namespace legoai::server
