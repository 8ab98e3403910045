#include "server/fleet/failure_policy.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

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

}  // namespace legoai::server
