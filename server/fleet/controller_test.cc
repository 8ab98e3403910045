#include "server/fleet/controller.h"

#include <gmock/gmock.h>

#include "core/process/build_version.h"
#include "proto/errors.h"
#include "proto/not_leader.h"
#include "server/fleet/testing/fleet_fixture.h"
#include "server/jobs/transition.h"

namespace legoai::server {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using namespace v1;  // the states' names

// What it planned is given up with it, which is no fault of the job, at whatever place the deciding thread is then.
TEST_F(FleetTest, AServerThatEndsFailsNoJobThatItPlans) {
  Connect(&agent_);
  Submit(2);
  agent_.link.NextStart();
  hold_plans_ = true;
  const std::string job = Submit(2);
  AwaitState(job, PLANNING);
  const int64_t writes = store_->writes;
  store_->hold_writes = true;
  skew_seconds_ = 1100;  // the lease expires, and the deciding thread waits for the disk
  const auto until = [](const std::function<bool()>& condition) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (!condition() && std::chrono::steady_clock::now() < deadline) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    EXPECT_TRUE(condition());
  };
  until([&] { return store_->writes > writes; });
  std::atomic<bool> given_up = false;
  const auto subscription = notifier_.Subscribe(job, [&] { given_up = true; });
  std::thread end([&] { StopController(); });
  until([&] { return given_up.load(); });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));  // the planner has said so by then, or says so too late to matter
  store_->hold_writes = false;
  end.join();
  hold_plans_ = false;
  StartController();
  EXPECT_EQ(AwaitState(job, SUBMITTED).reason().find("cancelled"), std::string::npos);
}

TEST_F(FleetTest, WhatIsInUseOfAMachineIsToldAsItWasHeardLastAndNotKept) {
  Connect(&agent_);
  EXPECT_FALSE(controller_->Workers().at(0).has_use());
  const int64_t writes = store_->writes;
  v1::Heartbeat heartbeat;
  heartbeat.mutable_use()->set_processor_share(0.75);
  heartbeat.mutable_use()->set_memory_bytes(4096);
  controller_->Heartbeat(agent_.session, heartbeat);
  EXPECT_EQ(controller_->Workers().at(0).use().processor_share(), 0.75);
  heartbeat.mutable_use()->set_processor_share(0.5);
  controller_->Heartbeat(agent_.session, heartbeat);
  EXPECT_EQ(controller_->Workers().at(0).use().processor_share(), 0.5);
  EXPECT_EQ(controller_->Workers().at(0).use().memory_bytes(), 4096);
  EXPECT_EQ(store_->writes, writes) << "a heartbeat writes nothing";
  Beat(&agent_, {});
  EXPECT_FALSE(controller_->Workers().at(0).has_use()) << "an agent that cannot tell any more";
  const auto expect_none = [&](const v1::WorkerUse& use) {
    *heartbeat.mutable_use() = use;
    controller_->Heartbeat(agent_.session, heartbeat);
    EXPECT_FALSE(controller_->Workers().at(0).has_use()) << use.ShortDebugString();
  };
  v1::WorkerUse use;
  for (const double share : {-0.1, 1.1, std::nan("")}) {
    use.set_processor_share(share);
    expect_none(use);
  }
  use.set_processor_share(0.5);
  use.add_gpus()->set_index(7);  // no card of its slots
  expect_none(use);
  use.clear_gpus();
  *heartbeat.mutable_use() = use;
  controller_->Heartbeat(agent_.session, heartbeat);
  const auto drained = Drain("workers/a");
  ASSERT_TRUE(drained.ok()) << drained.status();
  EXPECT_EQ(drained->use().processor_share(), 0.5);
  for (const v1::Worker& worker : MustRead(*store_, [](auto& read) { return read.ListWorkers(); }))
    EXPECT_FALSE(worker.has_use());
}

TEST_F(FleetTest, AJobGoesItsWholeWay) {
  const std::string job = Submit(2);
  EXPECT_THAT(Await(job, [](const v1::Job& now) { return !now.reason().empty(); }).reason(),
              HasSubstr("no worker of pool default"));
  Connect(&agent_);
  const v1::StartAttempt start = agent_.link.NextStart();
  EXPECT_EQ(start.lease().job(), job);
  EXPECT_EQ(start.lease().epoch(), 1);
  EXPECT_EQ(start.world_size(), 2);
  EXPECT_FALSE(start.has_resume_step());
  EXPECT_EQ(start.recipe().training().steps(), 10);
  Report(&agent_, start.lease(), [](v1::Telemetry* fact) { fact->mutable_started()->set_unigram_entropy(3.0); });
  EXPECT_EQ(Get(job).state(), STARTING);
  for (int step = 1; step <= 4; ++step) ReportStep(&agent_, start.lease(), step);
  EXPECT_EQ(Get(job).state(), RUNNING);
  EXPECT_TRUE(Commit(&agent_, start.lease(), 4).commit());
  EXPECT_EQ(controller_->Workers()[0].used(0).slots(), 2);
  ReportEnd(&agent_, start.lease(), absl::OkStatus());
  const v1::Job done = Get(job);
  EXPECT_EQ(done.state(), SUCCEEDED);
  EXPECT_EQ(done.committed_step(), 4);
  EXPECT_EQ(done.unigram_entropy(), 3.0);
  EXPECT_FALSE(done.outcome().has_error());
  EXPECT_TRUE(done.has_end_time_us());
  EXPECT_THAT(History(job), ElementsAre(PLANNING, QUEUED, LEASED, STARTING, RUNNING, SUCCEEDED));
  ASSERT_EQ(Attempts(job).size(), 1);
  EXPECT_EQ(Attempts(job)[0].state(), "succeeded");
  EXPECT_EQ(Attempts(job)[0].measured_step_seconds(), 0.5);
  EXPECT_EQ(Attempts(job)[0].predicted_step_seconds(), 0.5);
  EXPECT_EQ(Metrics(job).size(), 4);
  EXPECT_TRUE(controller_->Workers()[0].used().empty());
}

// The machine is so busy that the budget is over before anything was simulated.
TEST_F(FleetTest, AJobWhoseBudgetEndsFirstStillGetsASimulatedRecipe) {
  hold_plans_ = true;
  v1::Job slow = MakeJob(2);
  slow.mutable_spec()->mutable_planning()->set_budget_seconds(0.001);
  Submit(slow);
  Connect(&agent_);
  AwaitState(slow.name(), PLANNING);
  std::this_thread::sleep_for(std::chrono::milliseconds(1200));  // longer than budget and grace
  EXPECT_EQ(Get(slow.name()).state(), PLANNING);
  hold_plans_ = false;
  agent_.link.NextStart();
  const v1::Job job = Get(slow.name());
  EXPECT_FALSE(job.chosen().estimated());
  EXPECT_EQ(job.chosen().rank(), 1);
  EXPECT_GT(job.chosen().step_time_seconds(), 0);
}

TEST_F(FleetTest, ALongAttemptIsMeasuredByItsLatestSteps) {
  v1::Job made = MakeJob(2);
  made.mutable_spec()->mutable_recipe()->mutable_training()->set_steps(2 * kStepsMeasured + 1);
  Insert({made});
  const std::string job = made.name();
  controller_->JobChanged(job);
  Connect(&agent_);
  const v1::StartAttempt start = agent_.link.NextStart();
  std::vector<v1::Telemetry> facts;
  for (int64_t step = 1; step <= 2 * kStepsMeasured + 1; ++step) {
    v1::Telemetry& fact = facts.emplace_back();
    fact.set_sequence(++agent_.sequence);
    *fact.mutable_lease() = start.lease();
    fact.mutable_metrics()->set_step(step);
    fact.mutable_metrics()->set_step_seconds(step <= kStepsMeasured + 1 ? 2 : 1);
    fact.mutable_metrics()->set_peak_memory_bytes(step);
  }
  controller_->Telemetry(agent_.session, facts);
  ReportEnd(&agent_, start.lease(), absl::OkStatus());
  AwaitState(job, SUCCEEDED);
  EXPECT_EQ(Attempts(job)[0].measured_step_seconds(), 1);
  EXPECT_EQ(Attempts(job)[0].measured_peak_memory_bytes(), 2 * kStepsMeasured + 1);
}

TEST_F(FleetTest, ALeaseThatNobodyRenewsGoesToAnotherWorkerAndTheOldOneIsFencedOff) {
  TestAgent first("a"), second("b");
  const v1::LeaseId old = Begin(&first).lease();
  const std::string job = old.job();
  ReportStep(&first, old, 1);
  EXPECT_TRUE(Commit(&first, old, 1).commit());
  skew_seconds_ = 900;
  Connect(&second);
  skew_seconds_ = 1100;  // `first` was heard of 1,100 seconds ago, `second` 200
  const v1::StartAttempt again = second.link.NextStart();
  EXPECT_EQ(again.lease().epoch(), 2);
  EXPECT_EQ(again.resume_step(), 1);
  EXPECT_EQ(again.resume_directory(), CheckpointsOf(job, 1));
  // The old agent was stopped, and goes on.
  ReportStep(&first, old, 2);
  ReportEnd(&first, old, absl::OkStatus());
  const v1::CommitAnswer denied = Commit(&first, old, 2);
  EXPECT_FALSE(denied.commit());
  EXPECT_THAT(denied.reason(), HasSubstr("epoch 1"));
  Beat(&first, {old});
  const auto answer = first.link.Next([](const v1::ToAgent& message) { return message.has_heartbeat(); });
  ASSERT_EQ(answer.heartbeat().revoked_size(), 1);
  EXPECT_EQ(answer.heartbeat().revoked(0).epoch(), 1);
  EXPECT_EQ(Get(job).committed_step(), 1);
  EXPECT_EQ(Metrics(job).size(), 1);
  EXPECT_EQ(Get(job).state(), LEASED);
  ReportStep(&second, again.lease(), 2);
  EXPECT_TRUE(Commit(&second, again.lease(), 2).commit());
  EXPECT_EQ(Metrics(job).size(), 2);
  EXPECT_EQ(Attempts(job)[0].state(), "lost");
}

TEST_F(FleetTest, AServerThatIsStartedAnewKeepsLeasesAndTakesTelemetryOnce) {
  const v1::LeaseId lease = Begin(&agent_).lease();
  const std::string job = lease.job();
  ReportStep(&agent_, lease, 1);
  StopController();
  StartController();
  *agent_.hello.add_leases() = lease;
  agent_.sequence = 3;  // two more while the server was away
  Connect(&agent_);
  const auto welcome = agent_.link.Next([](const v1::ToAgent& message) { return message.has_welcome(); }).welcome();
  EXPECT_EQ(welcome.acknowledged_telemetry(), 1);
  agent_.sequence = 0;
  for (int step = 1; step <= 3; ++step) ReportStep(&agent_, lease, step);
  EXPECT_EQ(Get(job).state(), RUNNING);
  EXPECT_EQ(Get(job).epoch(), 1);
  EXPECT_EQ(Metrics(job).size(), 3);
  EXPECT_TRUE(Commit(&agent_, lease, 3).commit());
}

TEST_F(FleetTest, AnAgentThatComesBackWithoutItsTrainersLosesTheAttempt) {
  const v1::LeaseId lease = Begin(&agent_).lease();
  const std::string job = lease.job();
  ReportStep(&agent_, lease, 1);
  controller_->Disconnected(agent_.session);
  TestAgent reborn("a");
  reborn.hello.mutable_worker()->set_instance("a-2");
  Connect(&reborn);
  EXPECT_EQ(reborn.link.NextStart().lease().epoch(), 2);
  EXPECT_EQ(Get(job).restarts(), 1);
}

TEST_F(FleetTest, AnAttemptThatEndedWhileItsAgentWasAwayIsNotLost) {
  const v1::LeaseId lease = Begin(&agent_).lease();
  const std::string job = lease.job();
  ReportStep(&agent_, lease, 1);
  controller_->Disconnected(agent_.session);
  agent_.sequence = 2;  // the end, which the server has not heard of
  Connect(&agent_);
  EXPECT_EQ(Get(job).state(), RUNNING);
  agent_.sequence = 1;
  ReportEnd(&agent_, lease, absl::OkStatus());
  EXPECT_EQ(Get(job).state(), SUCCEEDED);
  EXPECT_EQ(Get(job).restarts(), 0);
}

TEST_F(FleetTest, ACancelledJobIsStoppedAtItsAgent) {
  const v1::LeaseId lease = Begin(&agent_).lease();
  const std::string job = lease.job();
  ReportStep(&agent_, lease, 1);
  MoveJob(job, CANCELLING, "asked by a user");
  controller_->JobChanged(job);
  const auto stop = agent_.link.Next([](const v1::ToAgent& message) { return message.has_stop(); }).stop();
  EXPECT_EQ(stop.lease().job(), job);
  EXPECT_FALSE(stop.save());
  ReportEnd(&agent_, lease, absl::OkStatus(), /*stopped=*/true);
  EXPECT_EQ(Get(job).state(), CANCELLED);
  EXPECT_EQ(Get(job).reason(), "asked by a user");
}

TEST_F(FleetTest, ACancelledJobOfALostWorkerEndsWithItsLease) {
  const std::string job = Submit(2);
  Connect(&agent_);
  agent_.link.NextStart();
  controller_->Disconnected(agent_.session);
  MoveJob(job, CANCELLING, "asked by a user");
  skew_seconds_ = 1100;
  AwaitState(job, CANCELLED);
}

TEST_F(FleetTest, WhatIsWrongWithTheJobFailsItAtOnceAndNamesTheField) {
  const std::string job = Submit(2);
  Connect(&agent_);
  ReportEnd(&agent_, agent_.link.NextStart().lease(),
            FieldError("training.dataset_path", "/x", "does not exist", absl::StatusCode::kNotFound));
  const v1::Job failed = Get(job);
  EXPECT_EQ(failed.state(), FAILED);
  EXPECT_EQ(failed.outcome().error().code(), 5);
  v1::FieldViolation violation;
  ASSERT_EQ(failed.outcome().error().details_size(), 1);
  ASSERT_TRUE(failed.outcome().error().details(0).UnpackTo(&violation));
  EXPECT_EQ(violation.field(), "training.dataset_path");
}

TEST_F(FleetTest, RanksThatDieAreStartedAgainAsOftenAsThePolicyAllowsWithoutANewCheckpoint) {
  const std::string job = Submit(2, 1, /*max_restarts=*/1);
  Connect(&agent_);
  v1::LeaseId lease = agent_.link.NextStart().lease();
  ReportStep(&agent_, lease, 1);
  ReportEnd(&agent_, lease, absl::UnavailableError("rank 1 died"));
  lease = agent_.link.NextStart().lease();
  EXPECT_TRUE(Commit(&agent_, lease, 1).commit());  // it gets further: the count begins anew
  ReportEnd(&agent_, lease, absl::UnavailableError("rank 1 died"));
  lease = agent_.link.NextStart().lease();
  ReportEnd(&agent_, lease, absl::UnavailableError("rank 1 died"));
  lease = agent_.link.NextStart().lease();
  ReportEnd(&agent_, lease, absl::DeadlineExceededError("rank 0 hangs"));
  EXPECT_EQ(Get(job).state(), FAILED);
  EXPECT_THAT(Get(job).reason(), HasSubstr("2 attempts in a row"));
  EXPECT_THAT(Get(job).reason(), HasSubstr("rank 0 hangs"));
  EXPECT_EQ(Attempts(job).size(), 4);
}

TEST_F(FleetTest, WithoutRestartsTheFirstFailureIsTheLast) {
  const std::string job = Submit(2, 1, /*max_restarts=*/0);
  Connect(&agent_);
  ReportEnd(&agent_, agent_.link.NextStart().lease(), absl::UnavailableError("rank 1 died"));
  EXPECT_EQ(Get(job).state(), FAILED);
  EXPECT_EQ(Get(job).reason(), "an attempt has failed, and policy.max_restarts is 0: rank 1 died");
}

TEST_F(FleetTest, AJobThatIsContentWithFewerSlotsThanItAskedForSaysSo) {
  const std::string job = Submit(8);
  Connect(&agent_);
  const v1::StartAttempt start = agent_.link.NextStart();
  EXPECT_EQ(start.world_size(), 2);
  EXPECT_EQ(Get(job).reason(), "2 slots of workers/a (8 were asked for)");
  ReportStep(&agent_, start.lease(), 1);
  EXPECT_EQ(Get(job).reason(), "trains on 2 slots (8 were asked for)");
}

TEST_F(FleetTest, AGangThatNoWorkerCanGiveAnyMoreIsPlannedForFewerSlots) {
  TestAgent large("a", 4), small("b", 2);
  const std::string job = Submit(4, 2);
  Connect(&large);
  const v1::StartAttempt start = large.link.NextStart();
  EXPECT_EQ(start.world_size(), 4);
  EXPECT_TRUE(Commit(&large, start.lease(), 3).commit());
  controller_->Disconnected(large.session);
  skew_seconds_ = 1100;
  AwaitState(job, RESTARTING);
  Connect(&small);
  const v1::StartAttempt again = small.link.NextStart();
  EXPECT_EQ(again.world_size(), 2);
  EXPECT_EQ(again.resume_step(), 3);
  EXPECT_EQ(again.recipe().training().global_batch_size(), start.recipe().training().global_batch_size());
  EXPECT_EQ(Get(job).world_size(), 2);
}

TEST_F(FleetTest, JobsWaitWithTheirReasonAndPlace) {
  Connect(&agent_);
  const std::string too_large = Submit(8, 4);
  EXPECT_THAT(Await(too_large, [](const v1::Job& now) { return !now.reason().empty(); }).reason(),
              HasSubstr("resources.min_slots is 4 and the largest worker of pool default has 2 slots"));
  const std::string first = Submit(2);
  agent_.link.NextStart();
  const std::string second = Submit(2), third = Submit(2);
  EXPECT_EQ(Await(second, [](const v1::Job& now) { return now.queue_position() == 1; }).state(), QUEUED);
  EXPECT_EQ(Await(third, [](const v1::Job& now) { return now.queue_position() == 2; }).state(), QUEUED);
  EXPECT_FALSE(Get(third).reason().empty());
}

TEST_F(FleetTest, ADrainingWorkerGetsNothingNewAndStaysSoAfterAReconnection) {
  Connect(&agent_);
  ASSERT_TRUE(Drain("workers/a").ok());
  const std::string job = Submit(2);
  Await(job, [](const v1::Job& now) { return !now.reason().empty(); });
  EXPECT_EQ(Get(job).state(), SUBMITTED);
  controller_->Disconnected(agent_.session);
  Connect(&agent_);
  EXPECT_EQ(controller_->Workers()[0].state(), DRAINING);
  ASSERT_TRUE(Drain("workers/a", /*undo=*/true).ok());
  EXPECT_EQ(agent_.link.NextStart().lease().job(), job);
  EXPECT_EQ(Drain("workers/x").status().code(), absl::StatusCode::kNotFound);
}

TEST_F(FleetTest, AServerThatIsStartedAnewKnowsItsWorkersByNameAndThatTheyDrain) {
  Connect(&agent_);
  ASSERT_TRUE(Drain("workers/a").ok());
  StopController();
  StartController();
  ASSERT_EQ(controller_->Workers().size(), 1);
  EXPECT_FALSE(controller_->Workers()[0].connected());
  Connect(&agent_);
  ASSERT_EQ(controller_->Workers().size(), 1);
  EXPECT_EQ(controller_->Workers()[0].name(), "workers/a");
  EXPECT_TRUE(controller_->Workers()[0].connected());
  EXPECT_EQ(controller_->Workers()[0].state(), DRAINING);
}

// Told to start it when it had been asked to end, it leaves it to others; they have it at once. Its slots are free from then on,
// but not for that job: whoever is told of the change finds it so.
TEST_F(FleetTest, AWorkerThatLeavesIsGivenNothingMore) {
  TestAgent leaving("a"), other("b");
  const v1::LeaseId lease = Begin(&leaving).lease();
  const std::string job = lease.job();
  bool told = false;
  const auto reporter = std::this_thread::get_id();
  const auto subscription = notifier_.Subscribe(job, [&] {
    if (std::this_thread::get_id() != reporter || told) return;
    told = true;
    // The slots are free, and the report is not through: time for the deciding thread, which may wait for the notifier itself.
    const auto decided = [](const v1::Job& now) {
      return now.state() != RESTARTING || now.reason().find("no worker") != std::string::npos;
    };
    for (int i = 0; i < 2000 && !decided(Get(job)); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  });
  ReportEnd(&leaving, lease, absl::OkStatus(), /*stopped=*/true, /*step=*/0);
  EXPECT_TRUE(told);
  EXPECT_EQ(Get(job).state(), RESTARTING);
  Connect(&other);
  EXPECT_EQ(other.link.NextStart().lease().epoch(), 2);
}

// Between its goodbye and the end of its stream nobody would hear of it.
TEST_F(FleetTest, AWorkerThatHasSaidGoodbyeIsGivenNothing) {
  TestAgent leaving("a"), other("b");
  Connect(&leaving);
  controller_->Goodbye(leaving.session);
  const std::string job = Submit(2);
  AwaitState(job, QUEUED);
  Connect(&other);
  const v1::LeaseId lease = other.link.NextStart().lease();
  EXPECT_EQ(lease.job(), job);
  EXPECT_EQ(lease.epoch(), 1);
}

TEST_F(FleetTest, AWorkerThatIsLostForLongIsForgotten) {
  constexpr int64_t kDay = 24 * 3600;
  TestAgent gone("a"), silent("b"), late("c");
  Connect(&gone);
  Connect(&silent);
  controller_->Disconnected(gone.session);
  const auto names = [&] {
    std::string last_letters;
    for (const v1::Worker& worker : controller_->Workers()) last_letters += worker.name().back();
    return last_letters;
  };
  skew_seconds_ = 6 * kDay;
  Connect(&late);
  EXPECT_EQ(names(), "abc");
  EXPECT_EQ(controller_->Workers()[0].state(), LOST);
  controller_->Disconnected(late.session);
  skew_seconds_ = 8 * kDay;
  for (int i = 0; i < 12000 && names() != "bc"; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_EQ(names(), "bc") << "one is connected, one is lost for two days";
  EXPECT_EQ(Drain("workers/a").status().code(), absl::StatusCode::kNotFound);
  StopController();
  StartController();
  EXPECT_EQ(names(), "bc") << "the store has forgotten it, too";
  Connect(&gone);
  EXPECT_EQ(names(), "abc");
}

// What happens while the first lease of a job is stored, before its agent is told of it.
class GrantTest : public FleetTest {
 protected:
  // Gives the job of two slots that it submits. `act` is done once, in the instant of its grant.
  std::string SubmitAndInTheInstantOfItsGrant(const std::function<void()>& act) {
    const v1::Job made = MakeJob(2);
    store_->written = [this, act, job = made.name()] {
      if (acted_ || Get(job).state() != LEASED) return;
      acted_ = true;
      act();
    };
    return Submit(made);
  }

  std::atomic<bool> acted_ = false;
};

// The lease is stored, and the goodbye comes before the agent can be told of it: nobody would renew it, or end it.
TEST_F(GrantTest, AGoodbyeEndsTheLease) {
  TestAgent leaving("a"), other("b");
  Connect(&leaving);
  const std::string job = SubmitAndInTheInstantOfItsGrant([&] { controller_->Goodbye(leaving.session); });
  EXPECT_THAT(AwaitState(job, RESTARTING).reason(), HasSubstr("workers/a has left; begins anew"));
  EXPECT_TRUE(acted_);
  EXPECT_EQ(Attempts(job)[0].state(), "lost");
  Connect(&other);
  EXPECT_EQ(other.link.NextStart().lease().epoch(), 2);
}

// While the lease is stored, an agent with other slots connects under the worker's name: the decision was for what is no more.
TEST_F(GrantTest, AWorkerThatIsAnotherByThenGetsNoneOfIt) {
  TestAgent first("a"), other("a");
  other.hello.mutable_worker()->mutable_device()->set_memory_bytes(first.hello.worker().device().memory_bytes() / 2);
  Connect(&first);
  const std::string job = SubmitAndInTheInstantOfItsGrant([&] { Connect(&other); });
  Await(job, [](const v1::Job& now) { return now.attempts() > 0 && now.state() != LEASED; });
  EXPECT_TRUE(acted_);
  EXPECT_THAT(Attempts(job)[0].error().message(), HasSubstr("other slots"));
  const auto is_first_start = [](const v1::ToAgent& message) { return message.has_start() && message.start().attempt() == 1; };
  EXPECT_FALSE(first.link.Has(is_first_start));
  EXPECT_FALSE(other.link.Has(is_first_start));
  EXPECT_EQ(other.link.NextStart().attempt(), 2) << "planned for what it is now";
}

// The same agent over a new stream: what was decided holds, and is sent there.
TEST_F(GrantTest, AnAgentThatReconnectsHearsOfIt) {
  TestAgent first("a"), again("a");
  Connect(&first);
  const std::string job = SubmitAndInTheInstantOfItsGrant([&] { Connect(&again); });
  EXPECT_EQ(again.link.NextStart().attempt(), 1);
  EXPECT_FALSE(first.link.Has([](const v1::ToAgent& message) { return message.has_start(); }));
  EXPECT_EQ(Get(job).state(), LEASED);
}

// Builds are replaced one after the other: what runs goes on, and comes to its end.
TEST_F(FleetTest, AnAgentOfAnotherBuildKeepsWhatItHasAndGetsNothingNew) {
  const v1::StartAttempt first = Begin(&agent_);
  ReportStep(&agent_, first.lease(), 1);
  agent_.hello.mutable_worker()->set_build_version("0.0.1+other");
  agent_.hello.set_protocol(kAgentProtocol);
  *agent_.hello.add_leases() = first.lease();
  agent_.hello.set_last_telemetry(agent_.sequence);
  Connect(&agent_);
  ReportStep(&agent_, first.lease(), 2);
  EXPECT_TRUE(Commit(&agent_, first.lease(), 2).commit());
  ReportEnd(&agent_, first.lease(), absl::OkStatus());
  AwaitState(first.lease().job(), v1::SUCCEEDED);
  const std::string next = Submit(2);
  AwaitReason(next, "; 1 is of another build than this server, and given nothing new until the same is installed there");
  EXPECT_EQ(Plans(next), 0) << "what no worker would be given is not planned for it";
  TestAgent same("b");
  Connect(&same);
  EXPECT_EQ(same.link.NextStart().lease().job(), next);
  EXPECT_FALSE(agent_.link.Has([](const v1::ToAgent& message) { return message.has_start(); }));
}

TEST_F(FleetTest, AnAgentThatCannotBeIsRefusedByField) {
  agent_.hello.mutable_worker()->set_build_version("0.0.1+other");
  const auto other_build = controller_->Connect(agent_.hello, &agent_.link);
  EXPECT_EQ(other_build.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(GetFieldViolation(other_build.status())->field(), "worker.build_version");
  agent_.hello.set_protocol(kAgentProtocol + 1);
  EXPECT_EQ(GetFieldViolation(controller_->Connect(agent_.hello, &agent_.link).status())->field(), "worker.build_version");
  TestAgent bad_name("a/b"), no_slots("a", 0);
  EXPECT_EQ(GetFieldViolation(controller_->Connect(bad_name.hello, &bad_name.link).status())->field(), "worker.name");
  EXPECT_EQ(GetFieldViolation(controller_->Connect(no_slots.hello, &no_slots.link).status())->field(), "worker.slots");
  TestAgent gpus("a", 2);
  const auto refused = [&](const std::vector<std::string>& uuids) {
    gpus.hello.mutable_worker()->clear_slot_devices();
    for (const std::string& uuid : uuids) gpus.hello.mutable_worker()->add_slot_devices()->set_uuid(uuid);
    return std::string(controller_->Connect(gpus.hello, &gpus.link).status().message());
  };
  EXPECT_THAT(refused({"GPU-a"}), HasSubstr("worker.slot_devices = 1: must be one for each of the 2 slots"));
  EXPECT_THAT(refused({"GPU-a", "GPU-b", "GPU-c"}), HasSubstr("worker.slot_devices = 3: "));
  EXPECT_THAT(refused({"GPU-a", "GPU-a"}), HasSubstr("worker.slot_devices.uuid = GPU-a: "));
  EXPECT_THAT(refused({"GPU-a", ""}), HasSubstr("worker.slot_devices.uuid"));
  TestAgent here("a"), there("a");
  Connect(&here);
  there.hello.mutable_worker()->set_host("elsewhere");
  EXPECT_EQ(controller_->Connect(there.hello, &there.link).status().code(), absl::StatusCode::kAlreadyExists);
}

TEST_F(FleetTest, WhereAGangMeetsAndLabelsAreWithinBounds) {
  v1::Worker& worker = *agent_.hello.mutable_worker();
  const auto refused = [&] {
    const auto violation = GetFieldViolation(controller_->Connect(agent_.hello, &agent_.link).status());
    return violation ? violation->field() : "";
  };
  worker.set_gang_address("10.0.0.1");
  const std::pair<int64_t, int64_t> wrong[] = {
      {0, 1}, {1, 0}, {65535, 2}, {65536, 1}, {1, 65536}, {INT64_MAX, INT64_MAX}, {1, INT64_MAX}, {INT64_MAX, 1}, {-1, 3}};
  for (const auto& [first, ports] : wrong) {
    worker.set_first_gang_port(first);
    worker.set_gang_ports(ports);
    EXPECT_EQ(refused(), "worker.first_gang_port") << first << ", " << ports;
  }
  worker.set_first_gang_port(1);
  worker.set_gang_ports(65535);
  worker.set_gang_address(std::string(256, '1'));
  EXPECT_EQ(refused(), "worker.gang_address");
  worker.set_gang_address("10.0.0.1");
  (*worker.mutable_labels())["rack"] = std::string(100'000, 'r');
  EXPECT_EQ(refused(), "worker.labels");
  (*worker.mutable_labels())["rack"] = "r1";
  Connect(&agent_);
}

TEST_F(FleetTest, APlanUnderWayIsMadeAnewByTheNextServerAndEndsWithItsJob) {
  hold_plans_ = true;
  Connect(&agent_);
  const std::string job = Submit(2);
  AwaitState(job, PLANNING);
  StopController();
  StartController();
  Connect(&agent_);
  Await(job, [](const v1::Job& now) { return now.state() == PLANNING && now.version() > 3; });
  MoveJob(job, CANCELLED, "asked by a user");
  controller_->JobChanged(job);
  const std::string next = Submit(2);  // it is planned although the plans before it never end by themselves
  AwaitState(next, PLANNING);
  hold_plans_ = false;
  EXPECT_EQ(agent_.link.NextStart().lease().job(), next);
  EXPECT_EQ(Get(job).state(), CANCELLED);
}

TEST_F(FleetTest, AJobOfWhichNoRecipeFitsFailsWithThePlannersWords) {
  largest_world_ = 0;
  Connect(&agent_);
  const v1::Job failed = AwaitState(Submit(2), FAILED);
  EXPECT_EQ(failed.outcome().error().code(), 8);
  EXPECT_THAT(failed.reason(), HasSubstr("no recipe fits"));
}

}  // namespace
}  // namespace legoai::server
