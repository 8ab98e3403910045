// A retry that goes on from a checkpoint of another job: where its attempts begin, and what its plan keeps.
#include <gmock/gmock.h>

#include <algorithm>
#include <functional>
#include <string>

#include "absl/strings/str_cat.h"
#include "server/fleet/testing/fleet_fixture.h"

namespace legoai::server {
namespace {

using testing::HasSubstr;
using namespace v1;  // the states' names

constexpr char kOldDirectory[] = "/runs/old/epoch-1/checkpoints";

class RetriedJobTest : public FleetTest {
 protected:
  // A failed job with checkpoints of two steps, the second of which a retry begins with.
  void SetUp() override {
    FleetTest::SetUp();
    v1::Job old = MakeJob(2);
    old.set_state(FAILED);
    old_ = old.name();
    Insert({old});
    recipe_ = old.spec().recipe();
    recipe_.mutable_optimizer()->set_lr(0.25);
    recipe_.mutable_training()->set_mixed_precision_param(v1::FLOAT32);
    v1::Attempt attempt;
    attempt.set_attempt(1);
    attempt.set_epoch(1);
    *attempt.mutable_recipe() = recipe_;
    Write([&](store::Transaction& transaction) { return transaction.PutAttempt(old_, attempt); });
    Put(2, "");
    start_ = Put(4, "");
  }
  v1::Checkpoint Put(int64_t step, const std::string& damage, bool take_back = false) {
    v1::Checkpoint checkpoint;
    checkpoint.set_name(absl::StrCat(old_, "/checkpoints/", step));
    checkpoint.set_step(step);
    checkpoint.set_epoch(1);
    checkpoint.set_attempt(1);
    checkpoint.set_directory(kOldDirectory);
    checkpoint.set_damage(damage);
    checkpoint.set_take_back(take_back);
    Write([&](store::Transaction& transaction) { return transaction.PutCheckpoint(old_, checkpoint); });
    return checkpoint;
  }
  std::string SubmitRetry(int64_t max_restarts = 1) {
    v1::Job job = MakeJob(2, 1, max_restarts);
    job.set_retry_of(old_);
    *job.mutable_starts_from() = start_;
    return Submit(job);
  }

  std::string old_;
  v1::Recipe recipe_;
  v1::Checkpoint start_;
};

TEST_F(RetriedJobTest, ItsAttemptsBeginWithTheOldCheckpointUntilItHasItsOwn) {
  Connect(&agent_);
  const std::string job = SubmitRetry();
  v1::StartAttempt start = agent_.link.NextStart();
  EXPECT_EQ(start.lease().job(), job);
  EXPECT_EQ(start.resume_step(), 4);
  EXPECT_EQ(start.resume_directory(), kOldDirectory);
  EXPECT_EQ(Attempts(job)[0].resume_step(), 4);
  ReportEnd(&agent_, start.lease(), absl::UnavailableError("rank 1 died"), false, 5);
  start = agent_.link.NextStart();
  EXPECT_EQ(start.resume_step(), 4);
  EXPECT_EQ(start.resume_directory(), kOldDirectory);
  EXPECT_TRUE(Commit(&agent_, start.lease(), 6).commit());
  ReportEnd(&agent_, start.lease(), absl::UnavailableError("rank 1 died"), false, 7);
  start = agent_.link.NextStart();
  EXPECT_EQ(start.resume_step(), 6);
  EXPECT_NE(start.resume_directory(), kOldDirectory);
}

TEST_F(RetriedJobTest, ItSaysFromWhereItGoesOn) {
  Connect(&agent_);
  const std::string job = SubmitRetry();
  const v1::StartAttempt start = agent_.link.NextStart();
  ReportStep(&agent_, start.lease(), 5);
  ReportEnd(&agent_, start.lease(), absl::UnavailableError("rank 1 died"), false, 5);
  agent_.link.NextStart();
  const auto transitions = Transitions(job);
  const auto restart =
      std::find_if(transitions.begin(), transitions.end(), [](const auto& one) { return one.to() == RESTARTING; });
  ASSERT_NE(restart, transitions.end());
  EXPECT_THAT(restart->reason(), HasSubstr(absl::StrCat("rank 1 died; goes on from step 4 of ", old_)));
}

TEST_F(RetriedJobTest, AttemptsWithoutACheckpointOfItsOwnCountAgainstItsBudget) {
  Connect(&agent_);
  const std::string job = SubmitRetry(/*max_restarts=*/1);
  ReportEnd(&agent_, agent_.link.NextStart().lease(), absl::UnavailableError("rank 1 died"), false, 5);
  ReportEnd(&agent_, agent_.link.NextStart().lease(), absl::UnavailableError("rank 0 died"), false, 5);
  EXPECT_EQ(Get(job).state(), FAILED);
  EXPECT_THAT(Get(job).reason(), HasSubstr("2 attempts in a row have failed"));
}

TEST_F(RetriedJobTest, ItIsPlannedWithWhatTheOldCheckpointFixes) {
  Connect(&agent_);
  SubmitRetry();
  const v1::Recipe planned = agent_.link.NextStart().recipe();
  EXPECT_EQ(planned.optimizer().lr(), recipe_.optimizer().lr());
  EXPECT_EQ(planned.training().mixed_precision_param(), recipe_.training().mixed_precision_param());
}

TEST_F(RetriedJobTest, WhereTheOldCheckpointIsDamagedItFallsBackToAnOlderOneAndThenFails) {
  Connect(&agent_);
  const std::string job = SubmitRetry(/*max_restarts=*/5);
  v1::LeaseId lease = agent_.link.NextStart().lease();
  Put(4, "a bit is flipped in rank-0");
  ReportEnd(&agent_, lease, absl::UnavailableError("rank 1 died"), false, 4);
  const v1::StartAttempt start = agent_.link.NextStart();
  EXPECT_EQ(start.resume_step(), 2);
  Put(2, "no manifest");
  ReportEnd(&agent_, start.lease(), absl::UnavailableError("rank 1 died"), false, 2);
  const v1::Job failed = Get(job);
  EXPECT_EQ(failed.state(), FAILED);
  EXPECT_THAT(failed.reason(),
              HasSubstr("none of its checkpoints is whole (step 4: a bit is flipped in rank-0; step 2: no manifest)"));
}

TEST_F(RetriedJobTest, OneThatWasAskedForThoughDamagedIsTakenBackUntilItIsFoundDamagedAgain) {
  start_ = Put(4, "", /*take_back=*/true);
  Connect(&agent_);
  const std::string job = SubmitRetry(/*max_restarts=*/5);
  const v1::StartAttempt start = agent_.link.NextStart();
  EXPECT_EQ(start.resume_step(), 4);
  EXPECT_TRUE(start.take_back());
  Report(&agent_, start.lease(), [](v1::Telemetry* fact) {
    v1::AttemptEnded& ended = *fact->mutable_ended();
    ended.mutable_error()->set_code(static_cast<int>(absl::StatusCode::kDataLoss));
    ended.mutable_error()->set_message("torn");
    ended.mutable_damage()->set_step(4);
    ended.mutable_damage()->set_directory(kOldDirectory);
    ended.mutable_damage()->set_detail("torn");
  });
  const v1::StartAttempt next = agent_.link.NextStart();
  EXPECT_EQ(next.resume_step(), 2);
  EXPECT_FALSE(next.take_back());
  EXPECT_FALSE(Get(job).starts_from().take_back());
}

}  // namespace
}  // namespace legoai::server
