#include "server/fleet/failure_policy.h"

#include <gmock/gmock.h>

#include "absl/strings/str_cat.h"
#include "server/fleet/testing/fleet_fixture.h"

namespace legoai::server {
namespace {

using testing::HasSubstr;
using testing::Not;

std::vector<Failure> Failures(const std::vector<std::pair<std::string, int64_t>>& all) {
  std::vector<Failure> failures;
  for (const auto& [message, step] : all) failures.push_back({absl::UnavailableError(message), step});
  return failures;
}

NextAttempt Judge(const std::vector<std::pair<std::string, int64_t>>& all, int64_t max_restarts) {
  const std::vector<Failure> failures = Failures(all);
  return JudgeFailure(FailureCause::kTrainers, failures.back().error, failures, max_restarts);
}

// Written out once more, as docs/operations.md has it.
TEST(FailurePolicy, WhatIsTriedAgainAndWhatCounts) {
  using Code = absl::StatusCode;
  for (int code = 1; code <= 16; ++code) {
    const FailureRule rule = RuleOf(FailureCause::kTrainers, static_cast<Code>(code));
    const bool passes = code == 14 /* unavailable */ || code == 4 /* deadline exceeded */ || code == 10 /* aborted */;
    EXPECT_EQ(rule.again, passes) << code;
    EXPECT_EQ(rule.counted, passes) << code;
    for (const FailureCause cause : {FailureCause::kWorkerLost, FailureCause::kWorkerLeaves, FailureCause::kCheckpointDamaged}) {
      EXPECT_TRUE(RuleOf(cause, static_cast<Code>(code)).again) << "whatever the code";
      EXPECT_FALSE(RuleOf(cause, static_cast<Code>(code)).counted);
    }
    EXPECT_TRUE(RuleOf(FailureCause::kOwnCheckpointDamaged, static_cast<Code>(code)).again);
    EXPECT_TRUE(RuleOf(FailureCause::kOwnCheckpointDamaged, static_cast<Code>(code)).counted);
  }
}

TEST(FailurePolicy, TheBackOffGrowsToItsCap) {
  const std::vector<int64_t> seconds = {0, 1, 4, 16, 64, 256, 300, 300};
  for (size_t failures = 0; failures < seconds.size(); ++failures)
    EXPECT_EQ(BackOff(static_cast<int64_t>(failures)), absl::Seconds(seconds[failures])) << failures;
  EXPECT_EQ(BackOff(1'000'000'000), kLongestBackOff);
}

TEST(FailurePolicy, AWaitThatNoFailureHasSetIsNone) {
  constexpr int64_t kNow = 1'800'000'000'000'000, kSecond = 1'000'000;
  EXPECT_EQ(BackOffLeft(kNow + 4 * kSecond, kNow), absl::Seconds(4));
  EXPECT_EQ(BackOffLeft(kNow, kNow), absl::ZeroDuration());
  EXPECT_EQ(BackOffLeft(kNow - 1, kNow), absl::ZeroDuration());
  EXPECT_EQ(BackOffLeft(0, kNow), absl::ZeroDuration());
  EXPECT_EQ(BackOffLeft(kNow + 300 * kSecond, kNow), kLongestBackOff);
  EXPECT_EQ(BackOffLeft(kNow + 301 * kSecond, kNow), absl::ZeroDuration()) << "the clock was set back";
}

TEST(FailurePolicy, WhatWouldFailAgainEndsTheJobAtOnce) {
  const absl::Status error = absl::InvalidArgumentError("training.dataset_path does not exist");
  const NextAttempt next = JudgeFailure(FailureCause::kTrainers, error, {}, 100);
  EXPECT_FALSE(next.again);
  EXPECT_EQ(next.reason, error.message());
}

TEST(FailurePolicy, LostWorkersAreNeitherCountedNorWaitedAfter) {
  const auto before = Failures({{"rank 1 died", 3}, {"rank 1 died", 3}});
  const absl::Status lost = absl::UnavailableError("workers/a is silent");
  const NextAttempt next = JudgeFailure(FailureCause::kWorkerLost, lost, before, 0);
  EXPECT_TRUE(next.again);
  EXPECT_EQ(next.wait, absl::ZeroDuration());
  EXPECT_EQ(next.reason, "workers/a is silent");
}

// Also where the attempt had made progress.
TEST(FailurePolicy, NoneIsTriedAgainWithoutRestarts) {
  const NextAttempt next = JudgeFailure(FailureCause::kTrainers, absl::UnavailableError("rank 1 died"), {}, 0);
  EXPECT_FALSE(next.again);
  EXPECT_EQ(next.reason, "an attempt has failed, and policy.max_restarts is 0: rank 1 died");
}

TEST(FailurePolicy, AsManyAsAreAllowedWithoutANewCheckpoint) {
  const NextAttempt first = Judge({{"rank 1 died", 3}}, 2);
  EXPECT_TRUE(first.again);
  EXPECT_EQ(first.wait, absl::Seconds(1));
  EXPECT_EQ(first.reason, "rank 1 died");
  const NextAttempt second = Judge({{"rank 1 died", 3}, {"rank 0 hangs", 4}}, 2);
  EXPECT_TRUE(second.again);
  EXPECT_EQ(second.wait, absl::Seconds(4));
  const NextAttempt third = Judge({{"rank 1 died", 3}, {"rank 0 hangs", 4}, {"rank 0 died", 4}}, 2);
  EXPECT_FALSE(third.again);
  EXPECT_EQ(third.reason, "3 attempts in a row have failed without a new checkpoint, and policy.max_restarts is 2: rank 0 died");
  EXPECT_EQ(Judge({{"rank 1 died", 3}}, 0).reason, "an attempt has failed, and policy.max_restarts is 0: rank 1 died");
}

TEST(FailurePolicy, TheSameFailureAtTheSameStepIsCalledSo) {
  EXPECT_EQ(Judge({{"rank 1 died", 123}, {"rank 1 died", 123}}, 2).reason, "fails at step 123 every time: rank 1 died");
  EXPECT_TRUE(Judge({{"rank 1 died", 123}, {"rank 1 died", 123}}, 2).again) << "it is no proof";
  EXPECT_THAT(Judge({{"rank 1 died", 123}, {"rank 1 died", 123}, {"rank 1 died", 123}}, 2).reason,
              HasSubstr("policy.max_restarts is 2: fails at step 123 every time: rank 1 died"));
  EXPECT_THAT(Judge({{"rank 1 died", 123}, {"rank 1 died", 124}}, 2).reason, Not(HasSubstr("every time")));
  EXPECT_THAT(Judge({{"rank 1 died", 123}, {"rank 0 died", 123}}, 2).reason, Not(HasSubstr("every time")));
  EXPECT_THAT(Judge({{"rank 1 died", 123}, {"rank 0 died", 123}, {"rank 1 died", 123}}, 9).reason, Not(HasSubstr("every time")));
  EXPECT_THAT(Judge({{"rank 0 died", 7}, {"rank 1 died", 123}, {"rank 1 died", 123}}, 9).reason,
              HasSubstr("step 123 every time"));
}

// Back-off and budget of a job, through a Controller: what is stored, what is said, and when slots are given again.

using namespace v1;  // the states' names

class AfterFailureTest : public FleetTest {
 protected:
  void Die(TestAgent* agent, const v1::LeaseId& lease, int64_t step = 1) {
    ReportEnd(agent, lease, absl::UnavailableError("rank 1 died"), /*stopped=*/false, step);
  }
  static bool IsStart(const v1::ToAgent& message) { return message.has_start(); }
};

TEST_F(AfterFailureTest, NoAttemptBeginsBeforeItsTimeAndTheWaitSaysWhen) {
  Connect(&agent_);
  const std::string job = Submit(2, 1, /*max_restarts=*/5);
  Die(&agent_, agent_.link.NextStart().lease());
  utc_skew_seconds_ += 10;
  Die(&agent_, agent_.link.NextStart().lease());
  utc_skew_seconds_ += 10;
  Die(&agent_, agent_.link.NextStart().lease());  // the third: 16 s
  const v1::Job waits = AwaitReason(job, "; waits until ");
  EXPECT_EQ(waits.state(), RESTARTING);
  EXPECT_THAT(waits.reason(),
              HasSubstr("fails at step 1 every time: rank 1 died; begins anew in 16 s (restart 3 of 5 without a new "
                        "checkpoint); waits until "));
  EXPECT_THAT(waits.reason(),
              HasSubstr(absl::FormatTime("%H:%M:%S UTC", absl::FromUnixMicros(waits.not_before_time_us()), absl::UTCTimeZone())));
  AwaitDecision();
  EXPECT_FALSE(agent_.link.Has(IsStart));
  utc_skew_seconds_ += 20;
  EXPECT_EQ(agent_.link.NextStart().lease().epoch(), 4);
  EXPECT_FALSE(Get(job).has_not_before_time_us());
}

TEST_F(AfterFailureTest, TheWaitSurvivesTheServer) {
  Connect(&agent_);
  const std::string job = Submit(2, 1, /*max_restarts=*/5);
  for (int i = 0; i < 3; ++i) {
    Die(&agent_, agent_.link.NextStart().lease());
    if (i < 2) utc_skew_seconds_ += 10;
  }
  const int64_t not_before = Get(job).not_before_time_us();
  EXPECT_GT(not_before, 0);
  StopController();
  StartController();
  Connect(&agent_);
  AwaitReason(job, "; waits until ");
  EXPECT_FALSE(agent_.link.Has(IsStart));
  EXPECT_EQ(Get(job).not_before_time_us(), not_before);
  utc_skew_seconds_ += 20;
  EXPECT_EQ(agent_.link.NextStart().lease().epoch(), 4);
}

TEST_F(AfterFailureTest, ItsSlotsAreKeptForItMeanwhile) {
  Connect(&agent_);
  const std::string job = Submit(2, 1, /*max_restarts=*/5);
  for (int i = 0; i < 3; ++i) {
    Die(&agent_, agent_.link.NextStart().lease());
    if (i < 2) utc_skew_seconds_ += 10;
  }
  const std::string other = Submit(2);
  AwaitState(other, QUEUED);
  AwaitDecision();
  EXPECT_FALSE(agent_.link.Has(IsStart));
  utc_skew_seconds_ += 20;
  EXPECT_EQ(agent_.link.NextStart().lease().job(), job);
}

TEST_F(AfterFailureTest, ANewCheckpointGivesTheWholeBudgetBack) {
  Connect(&agent_);
  const std::string job = Submit(2, 1, /*max_restarts=*/1);
  for (int64_t step = 1; step <= 4; ++step) {
    Die(&agent_, agent_.link.NextStart().lease(), step);
    utc_skew_seconds_ += 10;
    const v1::LeaseId lease = agent_.link.NextStart().lease();
    EXPECT_TRUE(Commit(&agent_, lease, step).commit());
    Die(&agent_, lease, step);
    EXPECT_FALSE(Get(job).has_not_before_time_us()) << "after progress there is no wait";
  }
  EXPECT_EQ(Get(job).restarts(), 8);
  Die(&agent_, agent_.link.NextStart().lease(), 5);
  utc_skew_seconds_ += 10;
  Die(&agent_, agent_.link.NextStart().lease(), 6);
  EXPECT_EQ(Get(job).state(), FAILED);
  EXPECT_THAT(Get(job).reason(), HasSubstr("2 attempts in a row have failed without a new checkpoint"));
}

TEST_F(AfterFailureTest, ALostAgentIsNeitherCountedNorWaitedFor) {
  Connect(&agent_);
  const std::string job = Submit(2, 1, /*max_restarts=*/0);
  for (int64_t i = 1; i <= 5; ++i) {
    EXPECT_EQ(agent_.link.NextStart().lease().epoch(), i);
    controller_->Disconnected(agent_.session);
    agent_.hello.mutable_worker()->set_instance(absl::StrCat("a-", i + 1));
    Connect(&agent_);
  }
  EXPECT_EQ(agent_.link.NextStart().lease().epoch(), 6);
  EXPECT_FALSE(Get(job).has_not_before_time_us());
}

}  // namespace
}  // namespace legoai::server
