// Back-off and budget of a job, through a Controller: what is stored, what is said, and when slots are given again.
#include <gmock/gmock.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "server/fleet/testing/fleet_fixture.h"

namespace legoai::server {
namespace {

using testing::HasSubstr;
using namespace v1;  // the states' names

class AfterFailureTest : public FleetTest {
 protected:
  void Die(TestAgent* agent, const v1::LeaseId& lease, int64_t step = 1) {
    ReportEnd(agent, lease, absl::UnavailableError("rank 1 died"), /*stopped=*/false, step);
  }
  static bool IsStart(const v1::ToAgent& message) { return message.has_start(); }
};

TEST_F(AfterFailureTest, NoAttemptBeginsBeforeItsTimeAndTheWaitSaysWhen) {
  TestAgent agent("a");
  Connect(&agent);
  const std::string job = Submit(2, 1, /*max_restarts=*/5);
  Die(&agent, agent.link.NextStart().lease());
  utc_skew_seconds_ += 10;
  Die(&agent, agent.link.NextStart().lease());
  utc_skew_seconds_ += 10;
  Die(&agent, agent.link.NextStart().lease());  // the third: 16 s
  const v1::Job waits = AwaitReason(job, "; waits until ");
  EXPECT_EQ(waits.state(), RESTARTING);
  EXPECT_THAT(waits.reason(),
              HasSubstr("fails at step 1 every time: rank 1 died; begins anew in 16 s (restart 3 of 5 without a new "
                        "checkpoint); waits until "));
  EXPECT_THAT(waits.reason(),
              HasSubstr(absl::FormatTime("%H:%M:%S UTC", absl::FromUnixMicros(waits.not_before_time_us()), absl::UTCTimeZone())));
  AwaitDecision();
  EXPECT_FALSE(agent.link.Has(IsStart));
  utc_skew_seconds_ += 20;
  EXPECT_EQ(agent.link.NextStart().lease().epoch(), 4);
  EXPECT_FALSE(Get(job).has_not_before_time_us());
}

TEST_F(AfterFailureTest, TheWaitSurvivesTheServer) {
  TestAgent agent("a");
  Connect(&agent);
  const std::string job = Submit(2, 1, /*max_restarts=*/5);
  for (int i = 0; i < 3; ++i) {
    Die(&agent, agent.link.NextStart().lease());
    if (i < 2) utc_skew_seconds_ += 10;
  }
  const int64_t not_before = Get(job).not_before_time_us();
  EXPECT_GT(not_before, 0);
  StopController();
  StartController();
  Connect(&agent);
  AwaitReason(job, "; waits until ");
  EXPECT_FALSE(agent.link.Has(IsStart));
  EXPECT_EQ(Get(job).not_before_time_us(), not_before);
  utc_skew_seconds_ += 20;
  EXPECT_EQ(agent.link.NextStart().lease().epoch(), 4);
}

TEST_F(AfterFailureTest, ItsSlotsAreKeptForItMeanwhile) {
  TestAgent agent("a");
  Connect(&agent);
  const std::string job = Submit(2, 1, /*max_restarts=*/5);
  for (int i = 0; i < 3; ++i) {
    Die(&agent, agent.link.NextStart().lease());
    if (i < 2) utc_skew_seconds_ += 10;
  }
  const std::string other = Submit(2);
  AwaitState(other, QUEUED);
  AwaitDecision();
  EXPECT_FALSE(agent.link.Has(IsStart));
  utc_skew_seconds_ += 20;
  EXPECT_EQ(agent.link.NextStart().lease().job(), job);
}

TEST_F(AfterFailureTest, ANewCheckpointGivesTheWholeBudgetBack) {
  TestAgent agent("a");
  Connect(&agent);
  const std::string job = Submit(2, 1, /*max_restarts=*/1);
  for (int64_t step = 1; step <= 4; ++step) {
    Die(&agent, agent.link.NextStart().lease(), step);
    utc_skew_seconds_ += 10;
    const v1::LeaseId lease = agent.link.NextStart().lease();
    EXPECT_TRUE(Commit(&agent, lease, step).commit());
    Die(&agent, lease, step);
    EXPECT_FALSE(Get(job).has_not_before_time_us()) << "after progress there is no wait";
  }
  EXPECT_EQ(Get(job).restarts(), 8);
  Die(&agent, agent.link.NextStart().lease(), 5);
  utc_skew_seconds_ += 10;
  Die(&agent, agent.link.NextStart().lease(), 6);
  EXPECT_EQ(Get(job).state(), FAILED);
  EXPECT_THAT(Get(job).reason(), HasSubstr("2 attempts in a row have failed without a new checkpoint"));
}

TEST_F(AfterFailureTest, ALostAgentIsNeitherCountedNorWaitedFor) {
  TestAgent agent("a");
  Connect(&agent);
  const std::string job = Submit(2, 1, /*max_restarts=*/0);
  for (int64_t i = 1; i <= 5; ++i) {
    EXPECT_EQ(agent.link.NextStart().lease().epoch(), i);
    controller_->Disconnected(agent.session);
    agent.hello.mutable_worker()->set_instance(absl::StrCat("a-", i + 1));
    Connect(&agent);
  }
  EXPECT_EQ(agent.link.NextStart().lease().epoch(), 6);
  EXPECT_FALSE(Get(job).has_not_before_time_us());
}

}  // namespace
}  // namespace legoai::server
