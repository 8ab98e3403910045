#include "server/fleet/resume_point.h"

#include <gmock/gmock.h>

#include "absl/strings/str_cat.h"
#include "server/fleet/attempt_facts.h"
#include "server/fleet/testing/fleet_fixture.h"
#include "server/jobs/transition.h"
#include "server/store/testing/oracle.h"

namespace legoai::server {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr char kFirst[] = "projects/default/jobs/01J00000000000000000000001";
constexpr char kSecond[] = "projects/default/jobs/01J00000000000000000000002";
constexpr char kThird[] = "projects/default/jobs/01J00000000000000000000003";

class ResumePointTest : public testing::Test {
 protected:
  v1::Job Insert(const std::string& name, const std::optional<v1::Checkpoint>& starts_from = std::nullopt) {
    v1::Job job;
    job.set_name(name);
    job.set_version(1);
    if (starts_from) *job.mutable_starts_from() = *starts_from;
    EXPECT_TRUE(store_.InsertJob(job, std::nullopt).ok());
    return job;
  }
  v1::Checkpoint Save(const std::string& job, int64_t epoch, int64_t step, const std::string& damage = "", bool gone = false) {
    v1::Checkpoint checkpoint;
    checkpoint.set_name(absl::StrCat(job, "/checkpoints/", step));
    checkpoint.set_step(step);
    checkpoint.set_epoch(epoch);
    checkpoint.set_attempt(epoch);
    checkpoint.set_directory(absl::StrCat("/runs/", job.substr(job.rfind('/') + 1), "/epoch-", epoch, "/checkpoints"));
    checkpoint.set_damage(damage);
    if (gone) checkpoint.set_remove_time_us(1);
    EXPECT_TRUE(store_.PutCheckpoint(job, checkpoint).ok());
    return checkpoint;
  }
  void Ran(const std::string& job, int64_t attempt, const std::string& model) {
    v1::Attempt ran;
    ran.set_attempt(attempt);
    ran.mutable_recipe()->mutable_model()->set_name(model);
    EXPECT_TRUE(store_.PutAttempt(job, ran).ok());
  }
  ResumePoint Find(const v1::Job& job) {
    auto point = FindResumePoint(store_, job);
    EXPECT_TRUE(point.ok()) << point.status();
    return *std::move(point);
  }
  // "epoch:step of J", or "anew".
  std::string Found(const v1::Job& job) {
    const ResumePoint point = Find(job);
    if (!point.checkpoint) return point.NoneIsWhole() ? "none is whole" : "anew";
    const std::string& name = point.checkpoint->name();
    return absl::StrCat(point.checkpoint->epoch(), ":", point.checkpoint->step(), " of ",
                        name.substr(name.find("/checkpoints/") - 1, 1));
  }

  store::Oracle store_;
};

TEST_F(ResumePointTest, TheLatestOfItsOwnThatIsKeptAndWhole) {
  const v1::Job job = Insert(kFirst);
  EXPECT_EQ(Found(job), "anew");
  EXPECT_FALSE(Find(job).NoneIsWhole());
  Save(kFirst, 1, 100);
  Save(kFirst, 1, 300);
  EXPECT_EQ(Found(job), "1:300 of 1");
  Save(kFirst, 1, 300, "a bit is flipped");
  Save(kFirst, 1, 200, "", /*gone=*/true);
  EXPECT_EQ(Found(job), "1:100 of 1");
  ASSERT_EQ(Find(job).damaged.size(), 1u);
  EXPECT_EQ(Find(job).damaged[0].step(), 300);
  // It was done again from there.
  Save(kFirst, 2, 300);
  EXPECT_EQ(Found(job), "2:300 of 1");
  EXPECT_THAT(Find(job).damaged, IsEmpty());
}

TEST_F(ResumePointTest, WhereAllAreDamagedItSaysSoAndDoesNotBeginAnew) {
  const v1::Job job = Insert(kFirst);
  Save(kFirst, 1, 100, "no manifest");
  Save(kFirst, 1, 200, "a bit is flipped");
  EXPECT_EQ(Found(job), "none is whole");
  EXPECT_THAT(NoneIsWholeText(Find(job)),
              HasSubstr("none of its checkpoints is whole (step 200: a bit is flipped; step 100: no manifest)"));
}

TEST_F(ResumePointTest, ARetryGoesOnFromWhatItWasMadeForUntilItHasItsOwn) {
  Insert(kFirst);
  Save(kFirst, 1, 100);
  const v1::Checkpoint start = Save(kFirst, 1, 200);
  Save(kFirst, 1, 300);
  const v1::Job job = Insert(kSecond, start);
  EXPECT_EQ(Found(job), "1:200 of 1") << "what comes after it belongs to the training that was given up";
  Save(kSecond, 1, 210);
  EXPECT_EQ(Found(job), "1:210 of 2");
  Save(kSecond, 1, 210, "torn");
  EXPECT_EQ(Found(job), "1:200 of 1");
  Save(kFirst, 1, 200, "torn, too");
  EXPECT_EQ(Found(job), "1:100 of 1");
  Save(kFirst, 1, 100, "gone");
  EXPECT_EQ(Found(job), "none is whole");
}

TEST_F(ResumePointTest, ARetryOfARetryFollowsTheLineOfThem) {
  Insert(kFirst);
  for (const int64_t step : {100, 200, 300}) Save(kFirst, 1, step);
  Insert(kSecond, Save(kFirst, 1, 200));
  const v1::Job job = Insert(kThird, Save(kSecond, 1, 250));
  Save(kSecond, 1, 260);
  std::vector<std::string> all;
  const auto resumable = ResumableCheckpoints(store_, job);
  ASSERT_TRUE(resumable.ok());
  for (const v1::Checkpoint& one : *resumable) all.push_back(one.name());
  EXPECT_THAT(all, ElementsAre(absl::StrCat(kSecond, "/checkpoints/250"), absl::StrCat(kFirst, "/checkpoints/200"),
                               absl::StrCat(kFirst, "/checkpoints/100")));
  Save(kSecond, 1, 250, "torn");
  EXPECT_EQ(Found(job), "1:200 of 1");
}

TEST_F(ResumePointTest, AnEarlierJobThatTheStoreHasForgottenStillHasWhatTheRetryWasMadeFor) {
  v1::Checkpoint start;
  start.set_name(absl::StrCat(kFirst, "/checkpoints/200"));
  start.set_step(200);
  start.set_epoch(1);
  EXPECT_EQ(Found(Insert(kSecond, start)), "1:200 of 1");
}

TEST_F(ResumePointTest, ItIsSaidWithTheJobWhereThatIsAnother) {
  const v1::Job job = Insert(kFirst), other = Insert(kSecond);
  const v1::Checkpoint checkpoint = Save(kFirst, 1, 200);
  EXPECT_EQ(GoesOnText(job, checkpoint), "goes on from step 200");
  EXPECT_EQ(GoesOnText(other, checkpoint), absl::StrCat("goes on from step 200 of ", kFirst));
  EXPECT_EQ(GoesOnText(job, std::nullopt), "begins anew");
}

TEST_F(ResumePointTest, TheRecipeToKeepIsThatOfTheAttemptThatWroteIt) {
  Insert(kFirst);
  Ran(kFirst, 1, "first");
  Ran(kFirst, 2, "second");
  const v1::Job job = Insert(kSecond, Save(kFirst, 2, 200));
  const auto recipe = RecipeToKeep(store_, job);
  ASSERT_TRUE(recipe.ok() && recipe->has_value());
  EXPECT_EQ((*recipe)->model().name(), "second");
  EXPECT_FALSE(RecipeToKeep(store_, Insert(kThird))->has_value());
}

using namespace v1;  // the states' names

class CheckpointDamageTest : public FleetTest {
 protected:
  // As an agent reports it of the checkpoint that it was told to go on from.
  void ReportDamage(const v1::StartAttempt& start, const std::string& detail) { ReportDamage(&agent_, start, detail); }
  void ReportDamage(TestAgent* agent, const v1::StartAttempt& start, const std::string& detail) {
    ReportDamage(agent, start, start.resume_step(), start.resume_directory(), detail);
  }
  void ReportDamage(TestAgent* agent, const v1::StartAttempt& start, int64_t step, const std::string& directory,
                    const std::string& detail) {
    Report(agent, start.lease(), [&](v1::Telemetry* fact) {
      v1::AttemptEnded& ended = *fact->mutable_ended();
      ended.mutable_error()->set_code(static_cast<int>(absl::StatusCode::kDataLoss));
      ended.mutable_error()->set_message("rank 1 (loading, step 0): " + detail);
      ended.mutable_damage()->set_step(step);
      ended.mutable_damage()->set_directory(directory);
      ended.mutable_damage()->set_detail(detail);
    });
  }
  // An attempt that has committed these steps and lost a rank.
  v1::StartAttempt CommitAndRestart(const std::vector<int64_t>& steps) {
    Connect(&agent_);
    const v1::StartAttempt first = agent_.link.NextStart();
    for (const int64_t step : steps) {
      ReportStep(&agent_, first.lease(), step);
      EXPECT_TRUE(Commit(&agent_, first.lease(), step).commit());
    }
    ReportEnd(&agent_, first.lease(), absl::UnavailableError("rank 1 died"));
    return agent_.link.NextStart();
  }
  std::vector<v1::Checkpoint> Checkpoints(const std::string& job) const {
    return MustRead(*store_, [&](auto& read) { return read.ListKeptCheckpoints(job); });
  }
  // Steps of those that are known to be damaged.
  std::vector<int64_t> Damaged(const std::string& job) const {
    std::vector<int64_t> steps;
    for (const v1::Checkpoint& one : Checkpoints(job)) {
      EXPECT_EQ(one.damage().empty(), !one.has_damage_time_us());
      if (!one.damage().empty()) steps.push_back(one.step());
    }
    return steps;
  }

  TestAgent agent_{"a"};
};

TEST_F(CheckpointDamageTest, TheNextOlderOneIsGoneOnFromAndNoRestartIsUsedUp) {
  const std::string job = Submit(2, 1, /*max_restarts=*/0);
  Connect(&agent_);
  const v1::LeaseId lease = agent_.link.NextStart().lease();
  for (const int64_t step : {4, 6, 8}) EXPECT_TRUE(Commit(&agent_, lease, step).commit());
  skew_seconds_ = 1100;  // the lease expires, which no policy counts
  AwaitState(job, RESTARTING);
  Connect(&agent_);
  v1::StartAttempt start = agent_.link.NextStart();
  ASSERT_EQ(start.resume_step(), 8);
  ReportDamage(start, "rank-00001.bin: w [0] + [4]: torn");
  start = agent_.link.NextStart();
  EXPECT_EQ(start.resume_step(), 6);
  EXPECT_EQ(start.resume_directory(), absl::StrCat("/runs/", job.substr(job.rfind('/') + 1), "/epoch-1/checkpoints"));
  EXPECT_EQ(Get(job).committed_step(), 6);
  EXPECT_EQ(Get(job).steps_back(), 1);
  ReportDamage(start, "/runs/epoch-1/step-6: is gone");
  start = agent_.link.NextStart();
  EXPECT_EQ(start.resume_step(), 4) << "policy.max_restarts = 0 allows no failure at all";
  EXPECT_EQ(Get(job).steps_back(), 2);
  EXPECT_THAT(Damaged(job), ElementsAre(6, 8));
  ASSERT_EQ(Attempts(job).size(), 4);
  EXPECT_EQ(Attempts(job)[1].damage().step(), 8);
  EXPECT_EQ(Attempts(job)[1].state(), "failed");
  std::vector<std::string> told;
  for (const v1::Transition& one : Transitions(job)) {
    if (one.to() == RESTARTING) told.push_back(one.reason());
  }
  EXPECT_EQ(told[1], "the checkpoint of step 8 is damaged (rank-00001.bin: w [0] + [4]: torn); goes on from step 6");
  EXPECT_EQ(told[2], "the checkpoint of step 6 is damaged (/runs/epoch-1/step-6: is gone); goes on from step 4 in 1 s")
      << "one bad disk does not use up all checkpoints within seconds";
}

// The same step is committed again by another epoch: the damaged one stays what it is, and the new one is gone on from.
TEST_F(CheckpointDamageTest, AStepThatIsSavedAgainIsGoneOnFrom) {
  const std::string job = Submit(2);
  v1::StartAttempt start = CommitAndRestart({4, 8});
  ReportDamage(start, "torn");
  start = agent_.link.NextStart();
  ASSERT_EQ(start.resume_step(), 4);
  EXPECT_TRUE(Commit(&agent_, start.lease(), 8).commit());
  EXPECT_EQ(Get(job).committed_step(), 8);
  Report(&agent_, start.lease(), [](v1::Telemetry* fact) { fact->mutable_earlier_removed(); });
  EXPECT_THAT(Damaged(job), ElementsAre(8)) << "it is on the disk, and listed";
  EXPECT_EQ(Checkpoints(job).size(), 2) << "both of step 8; that of step 4 was removed";
  ReportEnd(&agent_, start.lease(), absl::UnavailableError("rank 0 died"));
  start = agent_.link.NextStart();
  EXPECT_EQ(start.resume_step(), 8);
  EXPECT_EQ(start.resume_directory(), absl::StrCat("/runs/", job.substr(job.rfind('/') + 1), "/epoch-3/checkpoints"));
}

TEST_F(CheckpointDamageTest, OnlyWhenNoneLoadsTheJobFailsAndNamesThemAll) {
  const std::string job = Submit(2);
  v1::StartAttempt start = CommitAndRestart({4, 8});
  ReportDamage(start, "manifest.pb: torn");
  ReportDamage(agent_.link.NextStart(), "rank-00000.bin: missing");
  const v1::Job failed = AwaitState(job, FAILED);
  EXPECT_EQ(
      failed.reason(),
      "the checkpoint of step 4 is damaged (rank-00000.bin: missing); none of its checkpoints is whole (step 8: manifest.pb: "
      "torn; step 4: rank-00000.bin: missing): `lego retry --from STEP` tries one of them once more, `--fresh` begins anew");
  EXPECT_EQ(failed.outcome().error().code(), static_cast<int>(absl::StatusCode::kDataLoss));
  EXPECT_FALSE(failed.has_committed_step());
  EXPECT_EQ(failed.steps_back(), 2);
  EXPECT_THAT(Damaged(job), ElementsAre(4, 8));
}

// A retry goes on from a checkpoint of the job that it tries again: that is passed over in the same way.
TEST_F(CheckpointDamageTest, ThatOfTheJobThatIsTriedAgainIsMarkedThere) {
  const std::string earlier = Submit(2);
  const v1::StartAttempt first = CommitAndRestart({4, 8});
  ReportEnd(&agent_, first.lease(), absl::InvalidArgumentError("the text is another one"));
  AwaitState(earlier, FAILED);
  v1::Job retry = MakeJob(2);
  retry.set_retry_of(earlier);
  *retry.mutable_starts_from() = Checkpoints(earlier).back();
  Submit(retry);
  v1::StartAttempt start = agent_.link.NextStart();
  ASSERT_EQ(start.resume_step(), 8);
  ReportDamage(start, "torn");
  start = agent_.link.NextStart();
  EXPECT_EQ(start.resume_step(), 4);
  EXPECT_THAT(Damaged(earlier), ElementsAre(8));
  EXPECT_EQ(Get(earlier).committed_step(), 4) << "as another retry of it would go on from";
  EXPECT_EQ(Get(earlier).steps_back(), 1) << "whoever was told 8 sees why";
  EXPECT_EQ(Get(retry.name()).steps_back(), 1);
  EXPECT_EQ(Get(retry.name()).starts_from().damage(), "torn");
  ReportDamage(start, "gone");
  EXPECT_THAT(AwaitState(retry.name(), FAILED).reason(), HasSubstr("step 8: torn; step 4: gone"));
  EXPECT_THAT(Damaged(earlier), ElementsAre(4, 8));
  EXPECT_FALSE(Get(earlier).has_committed_step());
}

// Two retries of one job, of which the first finds out while the second waits for slots or has begun.
TEST_F(CheckpointDamageTest, WhatAnotherRetryHasFoundIsNoReasonToBeginAnewNorToFail) {
  const std::string earlier = Submit(2);
  const v1::StartAttempt first = CommitAndRestart({4, 8});
  ReportEnd(&agent_, first.lease(), absl::InvalidArgumentError("the text is another one"));
  AwaitState(earlier, FAILED);
  TestAgent other("b");
  Connect(&other);
  std::vector<v1::Job> retries;
  for (int i = 0; i < 3; ++i) {
    v1::Job retry = MakeJob(2);
    retry.set_retry_of(earlier);
    *retry.mutable_starts_from() = Checkpoints(earlier).back();
    retries.push_back(retry);
  }
  Insert(retries);
  for (const v1::Job& retry : retries) controller_->JobChanged(retry.name());
  // Two begin from step 8, and both find it damaged. The third waits for slots.
  const v1::StartAttempt a = agent_.link.NextStart(), b = other.link.NextStart();
  ASSERT_EQ(a.resume_step(), 8);
  ASSERT_EQ(b.resume_step(), 8);
  ReportDamage(&agent_, a, "torn");
  ReportDamage(&other, b, "was put aside as damaged before");
  for (const v1::StartAttempt& start : {a, b}) EXPECT_EQ(Get(start.lease().job()).steps_back(), 1);
  EXPECT_THAT(Damaged(earlier), ElementsAre(8));
  // None is left: who has not begun yet does not begin anew.
  const v1::StartAttempt last = agent_.link.NextStart();
  EXPECT_EQ(last.resume_step(), 4);
  const v1::StartAttempt beside = other.link.NextStart();
  EXPECT_EQ(beside.resume_step(), 4);
  ReportDamage(&agent_, last, "gone");
  ReportEnd(&other, beside.lease(), absl::InvalidArgumentError("the text is another one"));
  for (const v1::Job& retry : retries) {
    if (retry.name() == beside.lease().job()) continue;
    EXPECT_THAT(AwaitState(retry.name(), FAILED).reason(),
                HasSubstr("none of its checkpoints is whole (step 8: torn; step 4: gone)"));
  }
}

// What is saved at the last step cannot be read back for the export, whenever it is done again: that is not tried for ever.
TEST_F(CheckpointDamageTest, WhatAnAttemptHasSavedItselfIsCounted) {
  const std::string job = Submit(2, 1, /*max_restarts=*/2);
  Connect(&agent_);
  v1::StartAttempt start = agent_.link.NextStart();
  EXPECT_TRUE(Commit(&agent_, start.lease(), 4).commit());
  for (int attempt = 1; attempt <= 4; ++attempt) {
    ASSERT_EQ(start.resume_step(), attempt == 1 ? 0 : 4);
    EXPECT_TRUE(Commit(&agent_, start.lease(), 8).commit());
    const std::string own = absl::StrCat("/runs/", job.substr(job.rfind('/') + 1), "/epoch-", attempt, "/checkpoints");
    ReportDamage(&agent_, start, 8, own, "torn");
    EXPECT_EQ(Get(job).steps_back(), attempt);
    if (attempt < 4) start = agent_.link.NextStart();
  }
  EXPECT_THAT(AwaitState(job, FAILED).reason(),
              HasSubstr("3 attempts in a row have failed without a new checkpoint, and policy.max_restarts is 2"));
  EXPECT_EQ(Get(job).committed_step(), 4);
}

TEST_F(CheckpointDamageTest, DamageOfWhatIsNoCheckpointOfTheJobIsAnyOtherFailure) {
  const std::string job = Submit(2);
  const v1::StartAttempt start = CommitAndRestart({4, 8});
  ReportDamage(&agent_, start, 8, "/elsewhere", "torn");
  EXPECT_THAT(AwaitState(job, FAILED).reason(), HasSubstr("rank 1 (loading, step 0): torn"));
  EXPECT_TRUE(Damaged(job).empty());
  EXPECT_EQ(Get(job).committed_step(), 8);
}

TEST_F(CheckpointDamageTest, ACancelledJobIsCancelledAndItsCheckpointIsMarked) {
  const std::string job = Submit(2);
  const v1::StartAttempt start = CommitAndRestart({4, 8});
  MoveJob(job, CANCELLING, "enough");
  ReportDamage(start, "torn");
  EXPECT_EQ(AwaitState(job, CANCELLED).committed_step(), 4);
  EXPECT_THAT(Damaged(job), ElementsAre(8));
}

}  // namespace
}  // namespace legoai::server
