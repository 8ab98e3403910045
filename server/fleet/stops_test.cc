// Jobs that are stopped with a checkpoint: to be cancelled, and to be moved off a worker that is being drained.
#include <gmock/gmock.h>

#include <cmath>

#include "proto/errors.h"
#include "server/fleet/testing/fleet_fixture.h"
#include "server/jobs/stop.h"

namespace legoai::server {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using namespace v1;  // the states' names

class StopsTest : public FleetTest {
 protected:
  // A job of ten steps that saves every fifth, at step 6 on `agent`: step 5 is committed.
  v1::LeaseId BeginSaving(TestAgent* agent, int64_t max_restarts = 1) {
    if (agent->session == 0) Connect(agent);
    v1::Job job = MakeJob(2, 1, max_restarts);
    job.mutable_spec()->mutable_recipe()->mutable_checkpoint()->set_interval(5);
    Submit(job);
    const v1::LeaseId lease = agent->link.NextStart().lease();
    Train(agent, lease, 1, 6);
    EXPECT_TRUE(Commit(agent, lease, 5).commit());
    return lease;
  }
  void Train(TestAgent* agent, const v1::LeaseId& lease, int64_t first, int64_t last) {
    for (int64_t step = first; step <= last; ++step) ReportStep(agent, lease, step);
  }
  static v1::StopAttempt NextStop(TestAgent* agent) {
    return agent->link.Next([](const v1::ToAgent& message) { return message.has_stop(); }).stop();
  }
  static bool HasStop(const TestAgent& agent) {
    return agent.link.Has([](const v1::ToAgent& message) { return message.has_stop(); });
  }
  // As trainers do that are asked to: they save `step`, and stop.
  void SaveAndStop(TestAgent* agent, const v1::LeaseId& lease, int64_t step) {
    EXPECT_TRUE(Commit(agent, lease, step).commit());
    ReportEnd(agent, lease, absl::OkStatus(), /*stopped=*/true, step);
  }
  void Reconnect(TestAgent* agent, const v1::LeaseId& lease) {
    *agent->hello.add_leases() = lease;
    Connect(agent);
  }
};

TEST_F(StopsTest, JobsOfLowerPrioritySaveAndMakeRoomWhereTheServerPreempts) {
  for (const bool preempt : {false, true}) {
    StopController();
    preempt_ = preempt;
    StartController();
    TestAgent agent(preempt ? "preempting" : "waiting");
    const v1::LeaseId low = BeginSaving(&agent);
    v1::Job urgent = MakeJob(2);
    urgent.mutable_spec()->mutable_policy()->set_priority(5);
    const std::string high = Submit(urgent);
    AwaitReason(high, "2 slots are wanted on one worker");
    AwaitDecision();
    EXPECT_EQ(HasStop(agent), preempt);
    if (!preempt) {
      ReportEnd(&agent, low, absl::OkStatus());
      ReportEnd(&agent, agent.link.NextStart().lease(), absl::OkStatus());
      continue;
    }
    const v1::StopAttempt stop = NextStop(&agent);
    EXPECT_TRUE(stop.save());
    EXPECT_GT(stop.grace_seconds(), 0);
    EXPECT_LE(stop.grace_seconds(), absl::ToDoubleSeconds(preempt_grace_));
    EXPECT_EQ(Get(low.job()).stop().reason(), high + ", of priority 5, waits for its slots");
    SaveAndStop(&agent, low, 6);
    const v1::StartAttempt start = agent.link.NextStart();
    EXPECT_EQ(start.lease().job(), high);
    EXPECT_EQ(Get(low.job()).state(), QUEUED);
    EXPECT_EQ(Get(low.job()).restarts(), 0);
    // Nobody of the same priority makes room.
    v1::Job same = MakeJob(2);
    same.mutable_spec()->mutable_policy()->set_priority(5);
    const std::string other = Submit(same);
    AwaitReason(other, "2 slots are wanted on one worker");
    AwaitDecision();
    EXPECT_FALSE(HasStop(agent));
    ReportEnd(&agent, start.lease(), absl::OkStatus());
    ReportEnd(&agent, agent.link.NextStart().lease(), absl::OkStatus());
    const v1::StartAttempt again = agent.link.NextStart();
    EXPECT_EQ(again.lease().job(), low.job());
    EXPECT_EQ(again.resume_step(), 6);
  }
}

// Two jobs of one slot each, beside a third that waits for one, and what becomes of the slots that they give up in turns.
TEST_F(StopsTest, RoomIsKeptForWhomItIsMadeAndIsTheirsAgainWhoMadeItWhenThatIsCancelled) {
  for (const bool cancel : {false, true}) {
    StopController();
    preempt_ = true;
    StartController();
    TestAgent agent(cancel ? "cancelled" : "made-room");
    Connect(&agent);
    const auto begin = [&] {
      v1::Job job = MakeJob(1);
      job.mutable_spec()->mutable_recipe()->mutable_checkpoint()->set_interval(5);
      Submit(job);
      const v1::LeaseId lease = agent.link.NextStart().lease();
      Train(&agent, lease, 1, 6);
      return lease;
    };
    const v1::LeaseId first = begin(), second = begin();
    const std::string waiting = Submit(MakeJob(1));
    AwaitReason(waiting, "position 1");
    v1::Job urgent = MakeJob(2);
    urgent.mutable_spec()->mutable_policy()->set_priority(5);
    const std::string high = Submit(urgent);
    AwaitReason(high, "position 1");
    NextStop(&agent);
    NextStop(&agent);
    if (cancel) {
      Cancel(high, /*save=*/false, "not needed");
      SaveAndStop(&agent, first, 6);
      EXPECT_EQ(agent.link.NextStart().lease().job(), first.job()) << "before the one that has waited for longer";
      SaveAndStop(&agent, second, 6);
      EXPECT_EQ(agent.link.NextStart().lease().job(), second.job());
      EXPECT_FALSE(HasStop(agent));
      EXPECT_EQ(Get(waiting).state(), QUEUED);
      EXPECT_EQ(Get(first.job()).restarts() + Get(second.job()).restarts(), 0);
      continue;
    }
    SaveAndStop(&agent, first, 6);
    AwaitReason(high, "starts as soon as jobs have stopped that were asked to");
    AwaitDecision();
    EXPECT_EQ(Get(first.job()).state(), QUEUED);
    EXPECT_EQ(Get(waiting).state(), QUEUED);
    SaveAndStop(&agent, second, 6);
    const v1::LeaseId lease = agent.link.NextStart().lease();
    EXPECT_EQ(lease.job(), high);
    EXPECT_FALSE(HasStop(agent));
    for (const std::string& job : {waiting, first.job(), second.job()}) Cancel(job, /*save=*/false, "enough seen");
    ReportEnd(&agent, lease, absl::OkStatus());
  }
}

TEST_F(StopsTest, ACancelledJobSavesFirst) {
  const v1::LeaseId lease = BeginSaving(&agent_);
  const v1::Job cancelled = Cancel(lease.job(), /*save=*/true, "enough seen");
  EXPECT_EQ(cancelled.state(), CANCELLING);
  EXPECT_EQ(cancelled.reason(), "was cancelled: enough seen; it saves first, for at most 1 min");
  const v1::StopAttempt stop = NextStop(&agent_);
  EXPECT_EQ(stop.lease().job(), lease.job());
  EXPECT_EQ(stop.lease().epoch(), lease.epoch());
  EXPECT_TRUE(stop.save());
  EXPECT_GT(stop.grace_seconds(), 0);
  EXPECT_LE(stop.grace_seconds(), 60);
  EXPECT_EQ(stop.reason(), "was cancelled: enough seen");
  Train(&agent_, lease, 7, 7);
  SaveAndStop(&agent_, lease, 7);
  const v1::Job done = Get(lease.job());
  EXPECT_EQ(done.state(), CANCELLED);
  EXPECT_EQ(done.reason(), "was cancelled: enough seen; step 7 is saved, and nothing was lost");
  EXPECT_EQ(done.outcome().error().code(), static_cast<int>(absl::StatusCode::kCancelled));
  EXPECT_EQ(done.committed_step(), 7);
  EXPECT_EQ(done.restarts(), 0);
  EXPECT_TRUE(done.stop().save());
  const v1::Attempt attempt = Attempts(done.name()).at(0);
  EXPECT_EQ(attempt.state(), "stopped");
  EXPECT_FALSE(attempt.has_error());
  EXPECT_EQ(attempt.last_step(), 7);
  EXPECT_EQ(attempt.saved_step(), 7);
  EXPECT_TRUE(attempt.stop().save());
}

TEST_F(StopsTest, ASecondCancellationWithoutSavingTakesOver) {
  const v1::LeaseId lease = BeginSaving(&agent_);
  Cancel(lease.job(), /*save=*/true);
  EXPECT_TRUE(NextStop(&agent_).save());
  const int64_t version = Get(lease.job()).version();
  EXPECT_EQ(Cancel(lease.job(), /*save=*/true).version(), version) << "it saves already";
  const v1::Job now = Cancel(lease.job(), /*save=*/false, "at once");
  EXPECT_EQ(now.reason(), "was cancelled: at once; it does not save any more");
  EXPECT_FALSE(NextStop(&agent_).save());
  EXPECT_EQ(Cancel(lease.job(), /*save=*/true).version(), now.version()) << "too late";
  ReportEnd(&agent_, lease, absl::OkStatus(), /*stopped=*/true, 6);
  EXPECT_EQ(Get(lease.job()).state(), CANCELLED);
  EXPECT_EQ(Get(lease.job()).reason(), "was cancelled: at once");
  EXPECT_FALSE(Attempts(lease.job()).at(0).has_saved_step());
}

TEST_F(StopsTest, WhatIsNotSavedInTimeIsSaid) {
  const v1::LeaseId lease = BeginSaving(&agent_);
  Cancel(lease.job(), /*save=*/true);
  EXPECT_TRUE(NextStop(&agent_).save());
  utc_skew_seconds_ = 100;
  EXPECT_FALSE(NextStop(&agent_).save()) << "also an agent whose own clock stood still hears that the time is over";
  ReportEnd(&agent_, lease, absl::OkStatus(), /*stopped=*/true, 6);
  EXPECT_EQ(Get(lease.job()).state(), CANCELLED);
  EXPECT_EQ(Get(lease.job()).reason(), "was cancelled; step 6 was not saved within 1 min: its last checkpoint is of step 5");
  EXPECT_FALSE(Attempts(lease.job()).at(0).has_saved_step());
}

TEST_F(StopsTest, WhatDoesNotRunIsCancelledAtOnceAndSaysThatNothingWasToBeSaved) {
  const std::string waiting = Submit(2);
  const v1::Job job = Cancel(waiting, /*save=*/true, "a mistake");
  EXPECT_EQ(job.state(), CANCELLED);
  EXPECT_EQ(job.reason(),
            "was cancelled: a mistake; nothing was to be saved, since it did not run: it has no checkpoint");
  const v1::LeaseId lease = BeginSaving(&agent_);
  ASSERT_TRUE(Drain("workers/a").ok());
  NextStop(&agent_);
  SaveAndStop(&agent_, lease, 6);
  AwaitState(lease.job(), QUEUED);
  EXPECT_EQ(Cancel(lease.job(), /*save=*/true).reason(),
            "was cancelled; nothing was to be saved, since it did not run: its last checkpoint is of step 6");
}

TEST_F(StopsTest, AServerThatIsStartedAnewGoesOnWithTheStop) {
  const v1::LeaseId lease = BeginSaving(&agent_);
  Cancel(lease.job(), /*save=*/true);
  const double grace = NextStop(&agent_).grace_seconds();
  StopController();
  utc_skew_seconds_ = 30;
  StartController();
  Reconnect(&agent_, lease);
  const v1::StopAttempt again = NextStop(&agent_);
  EXPECT_TRUE(again.save());
  EXPECT_LE(again.grace_seconds(), grace - 29) << "what is left of it";
  SaveAndStop(&agent_, lease, 6);
  EXPECT_EQ(Get(lease.job()).state(), CANCELLED);
  EXPECT_EQ(Attempts(lease.job()).at(0).saved_step(), 6);
}

TEST_F(StopsTest, AnAgentOrATrainerThatDiesWhileItSavesEndsTheJobWithItsLastCheckpoint) {
  v1::LeaseId lease = BeginSaving(&agent_);
  Cancel(lease.job(), /*save=*/true);
  NextStop(&agent_);
  ReportEnd(&agent_, lease, absl::UnavailableError("rank 1 died"), false, 6);
  EXPECT_EQ(Get(lease.job()).state(), CANCELLED);
  EXPECT_EQ(Get(lease.job()).reason(),
            "was cancelled; it could not save any more (rank 1 died): its last checkpoint is of step 5");
  lease = BeginSaving(&agent_);
  Cancel(lease.job(), /*save=*/true);
  NextStop(&agent_);
  skew_seconds_ = 1100;
  EXPECT_THAT(AwaitState(lease.job(), CANCELLED).reason(),
              HasSubstr("it could not save any more (nothing was heard of workers/a for "));
  EXPECT_EQ(Attempts(lease.job()).at(0).state(), "lost");
}

TEST_F(StopsTest, AJobThatFinishesMeanwhileHasSucceeded) {
  const v1::LeaseId lease = BeginSaving(&agent_);
  Cancel(lease.job(), /*save=*/true);
  NextStop(&agent_);
  EXPECT_TRUE(Commit(&agent_, lease, 10).commit());
  ReportEnd(&agent_, lease, absl::OkStatus());
  EXPECT_EQ(Get(lease.job()).state(), SUCCEEDED);
  EXPECT_FALSE(Get(lease.job()).has_stop());
}

TEST_F(StopsTest, ADrainedWorkersJobGoesOnElsewhereFromTheStepThatItSaved) {
  TestAgent other("b");
  const v1::LeaseId lease = BeginSaving(&agent_, /*max_restarts=*/0);
  Connect(&other);
  ASSERT_TRUE(Drain("workers/a").ok());
  const v1::StopAttempt stop = NextStop(&agent_);
  EXPECT_TRUE(stop.save());
  EXPECT_EQ(stop.reason(), "workers/a is being drained");
  EXPECT_EQ(Get(lease.job()).state(), RUNNING);
  EXPECT_EQ(Get(lease.job()).reason(), "saves, for at most 1 min, and goes on where there is room: workers/a is being drained");
  Train(&agent_, lease, 7, 7);
  SaveAndStop(&agent_, lease, 7);
  const v1::StartAttempt start = other.link.NextStart();
  EXPECT_EQ(start.lease().job(), lease.job());
  EXPECT_EQ(start.lease().epoch(), 2);
  EXPECT_EQ(start.resume_step(), 7);
  EXPECT_EQ(start.resume_directory(), CheckpointsOf(lease.job(), 1));
  Train(&other, start.lease(), 8, 10);
  EXPECT_TRUE(Commit(&other, start.lease(), 10).commit());
  ReportEnd(&other, start.lease(), absl::OkStatus());
  const v1::Job done = Get(lease.job());
  EXPECT_EQ(done.state(), SUCCEEDED);
  EXPECT_EQ(done.restarts(), 0) << "nothing was lost";
  EXPECT_FALSE(done.has_stop());
  EXPECT_EQ(Metrics(done.name()).size(), 10);
  EXPECT_THAT(History(done.name()), ElementsAre(PLANNING, QUEUED, LEASED, RUNNING, QUEUED, LEASED, RUNNING, SUCCEEDED));
  const auto moved = Transitions(done.name()).at(4);
  EXPECT_EQ(moved.reason(), "stopped on request: workers/a is being drained; step 7 is saved, and nothing was lost");
  EXPECT_EQ(Attempts(done.name()).at(0).state(), "stopped");
  EXPECT_EQ(Attempts(done.name()).at(0).saved_step(), 7);
}

// Whose trainers are killed since the grace is over, or die: it goes on from the last checkpoint. The death counts, the kill does
// not.
TEST_F(StopsTest, AJobThatIsMovedFallsBackToItsLastCheckpoint) {
  TestAgent other("b");
  v1::LeaseId lease = BeginSaving(&agent_, /*max_restarts=*/0);
  Connect(&other);
  ASSERT_TRUE(Drain("workers/a").ok());
  NextStop(&agent_);
  utc_skew_seconds_ = 100;
  EXPECT_FALSE(NextStop(&agent_).save());
  ReportEnd(&agent_, lease, absl::OkStatus(), /*stopped=*/true, 6);
  v1::StartAttempt start = other.link.NextStart();
  EXPECT_EQ(start.resume_step(), 5);
  EXPECT_EQ(Get(lease.job()).restarts(), 0);
  EXPECT_THAT(Transitions(lease.job()).at(4).reason(), HasSubstr("step 6 was not saved within 1 min"));
  ASSERT_TRUE(Drain("workers/b").ok());
  NextStop(&other);
  ReportEnd(&other, start.lease(), absl::UnavailableError("rank 0 died"), false, 6);
  EXPECT_EQ(Get(lease.job()).state(), FAILED);
  EXPECT_FALSE(Get(lease.job()).has_stop());
}

TEST_F(StopsTest, AWorkerThatIsLostWhileItDrainsLosesTheAttempt) {
  TestAgent other("b");
  const v1::LeaseId lease = BeginSaving(&agent_);
  ASSERT_TRUE(Drain("workers/a").ok());
  NextStop(&agent_);
  skew_seconds_ = 900;
  Connect(&other);
  skew_seconds_ = 1100;
  EXPECT_EQ(other.link.NextStart().resume_step(), 5);
  EXPECT_EQ(Get(lease.job()).restarts(), 1);
  EXPECT_FALSE(Get(lease.job()).has_stop());
}

TEST_F(StopsTest, AMovedJobWaitsUntilThereIsAPlace) {
  const v1::LeaseId lease = BeginSaving(&agent_);
  ASSERT_TRUE(Drain("workers/a").ok());
  NextStop(&agent_);
  SaveAndStop(&agent_, lease, 6);
  AwaitDecision();
  EXPECT_EQ(Get(lease.job()).state(), QUEUED);
  EXPECT_FALSE(Get(lease.job()).reason().empty());
  ASSERT_TRUE(Drain("workers/a", /*undo=*/true).ok());
  EXPECT_EQ(agent_.link.NextStart().resume_step(), 6);
}

TEST_F(StopsTest, AWorkerMayLetItsJobsFinish) {
  const v1::LeaseId lease = BeginSaving(&agent_);
  ASSERT_TRUE(Drain("workers/a", false, /*let_finish=*/true).ok());
  AwaitDecision();
  AwaitDecision();
  EXPECT_FALSE(HasStop(agent_));
  controller_->Disconnected(agent_.session);
  Reconnect(&agent_, lease);
  EXPECT_TRUE(controller_->Workers()[0].lets_finish()) << "an agent does not know of it, and the server does";
  AwaitDecision();
  EXPECT_FALSE(HasStop(agent_));
  ASSERT_TRUE(Drain("workers/a").ok());
  EXPECT_TRUE(NextStop(&agent_).save()) << "it is in a hurry after all";
  SaveAndStop(&agent_, lease, 6);
  EXPECT_EQ(Get(lease.job()).state(), QUEUED);
}

// It was killed after it had stored that the worker drains, and before it had asked any job.
TEST_F(StopsTest, AServerThatIsStartedAnewGoesOnWithTheDrain) {
  const v1::LeaseId lease = BeginSaving(&agent_);
  StopController();
  Write([&](store::Transaction& transaction) {
    v1::Worker worker = **transaction.GetWorker("workers/a");
    worker.set_state(v1::DRAINING);
    worker.set_drain_grace_seconds(7);
    return transaction.PutWorker(worker);
  });
  StartController();
  Reconnect(&agent_, lease);
  const v1::StopAttempt stop = NextStop(&agent_);
  EXPECT_TRUE(stop.save());
  EXPECT_LE(stop.grace_seconds(), 7);
}

TEST_F(StopsTest, AJobThatIsMovedCanBeCancelled) {
  const v1::LeaseId lease = BeginSaving(&agent_);
  ASSERT_TRUE(Drain("workers/a").ok());
  EXPECT_TRUE(NextStop(&agent_).save());
  EXPECT_EQ(Cancel(lease.job(), /*save=*/false).state(), CANCELLING);
  EXPECT_FALSE(NextStop(&agent_).save());
  ReportEnd(&agent_, lease, absl::OkStatus(), /*stopped=*/true, 6);
  EXPECT_EQ(Get(lease.job()).state(), CANCELLED);
}

// The agent hears of the time that the job has now: its own clock ends the save.
TEST_F(StopsTest, AJobThatIsMovedCanBeCancelledWithMoreTimeToSave) {
  const v1::LeaseId lease = BeginSaving(&agent_);
  ASSERT_TRUE(Drain("workers/a").ok());
  EXPECT_LE(NextStop(&agent_).grace_seconds(), 60);
  EXPECT_EQ(Cancel(lease.job(), /*save=*/true, "", /*grace_seconds=*/600).reason(),
            "was cancelled; it saves first, for at most 10 min");
  const v1::StopAttempt again = NextStop(&agent_);
  EXPECT_TRUE(again.save());
  EXPECT_GT(again.grace_seconds(), 60);
  EXPECT_LE(again.grace_seconds(), 600);
  EXPECT_EQ(again.reason(), "was cancelled");
  utc_skew_seconds_ = 100;
  AwaitDecision();
  EXPECT_FALSE(HasStop(agent_)) << "what the drain gave does not count any more, and the agent is told but once";
  SaveAndStop(&agent_, lease, 6);
  EXPECT_EQ(Get(lease.job()).state(), CANCELLED);
  EXPECT_EQ(Get(lease.job()).reason(), "was cancelled; step 6 is saved, and nothing was lost");
}

TEST_F(StopsTest, AJobThatIsMovedCanBeCancelledWithLessTimeToSave) {
  const v1::LeaseId lease = BeginSaving(&agent_);
  ASSERT_TRUE(Drain("workers/a").ok());
  NextStop(&agent_);
  EXPECT_EQ(Cancel(lease.job(), /*save=*/true, "", /*grace_seconds=*/20).reason(),
            "was cancelled; it saves first, for at most 20 s");
  const v1::StopAttempt again = NextStop(&agent_);
  EXPECT_TRUE(again.save());
  EXPECT_LE(again.grace_seconds(), 20);
}

TEST_F(StopsTest, AJobWhoseTimeToSaveIsOverIsCancelledWithout) {
  const v1::LeaseId lease = BeginSaving(&agent_);
  ASSERT_TRUE(Drain("workers/a").ok());
  EXPECT_TRUE(NextStop(&agent_).save());
  utc_skew_seconds_ = 100;
  EXPECT_FALSE(NextStop(&agent_).save());
  const v1::Job cancelled = Cancel(lease.job(), /*save=*/true, "enough seen", /*grace_seconds=*/600);
  EXPECT_EQ(cancelled.state(), CANCELLING);
  EXPECT_EQ(cancelled.reason(), "was cancelled: enough seen; it is too late to save, for which it had 1 min");
  AwaitDecision();
  EXPECT_FALSE(HasStop(agent_));
  ReportEnd(&agent_, lease, absl::OkStatus(), /*stopped=*/true, 6);
  EXPECT_EQ(Get(lease.job()).state(), CANCELLED);
  EXPECT_EQ(Get(lease.job()).reason(),
            "was cancelled: enough seen; step 6 was not saved within 1 min: its last checkpoint is of step 5");
}

TEST_F(StopsTest, AGraceThatCannotBeIsRefused) {
  for (const double seconds : {-1.0, 1e9, std::nan(""), HUGE_VAL}) {
    const auto violation = GetFieldViolation(StopGrace("grace_seconds", seconds).status());
    ASSERT_TRUE(violation) << seconds;
    EXPECT_EQ(violation->field(), "grace_seconds");
    EXPECT_THAT(violation->remedy(), HasSubstr("at most 86400"));
  }
  EXPECT_EQ(StopGrace("", 0).value(), kDefaultStopGrace);
  EXPECT_EQ(StopGrace("", 1.5).value(), absl::Seconds(1.5));
}

}  // namespace
}  // namespace legoai::server
