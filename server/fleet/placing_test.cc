// A job runs on what it was planned for, or is planned again; in which order jobs are planned; what is started beside a job that
// waits.
#include <gmock/gmock.h>

#include <atomic>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/hardware/catalog.h"
#include "server/fleet/offers.h"
#include "server/fleet/testing/fleet_fixture.h"
#include "server/jobs/transition.h"
#include "server/metrics/log.h"

namespace legoai::server {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using namespace v1;  // the states' names

struct SlowAgent : TestAgent {
  SlowAgent(const std::string& name, int64_t slots) : TestAgent(name, slots) {
    *hello.mutable_worker()->mutable_device() = *sim::FindDevice("a100-sxm-40");
  }
};

class PlacingTest : public FleetTest {
 protected:
  std::string SubmitWith(int64_t slots, const std::function<void(v1::JobSpec*)>& change) {
    v1::Job job = MakeJob(slots, slots);
    change(job.mutable_spec());
    return Submit(job);
  }
  // Waits for any two slots, before all others.
  std::string InsertUrgent() {
    v1::Job job = MakeJob(2, 2);
    job.set_state(QUEUED);
    job.set_world_size(2);
    job.mutable_spec()->mutable_policy()->set_priority(9);
    Submit(job);
    AwaitReason(job.name(), "position 1");
    return job.name();
  }
  std::string PlannedFor(const std::string& job) {
    const auto plan = MustRead(*store_, [&](auto& read) { return read.GetPlan(job); });
    return plan ? plan->cluster() : "";
  }
};

TEST(SlotKind, SaysWhatAPlanDependsOn) {
  v1::Worker worker;
  *worker.mutable_device() = *sim::FindDevice("cpu");
  worker.set_slots(4);
  worker.set_host_memory_bytes((int64_t{16} << 30) + 12345678);
  worker.set_host_cores(4);
  const std::string kind = SlotKind(worker);
  EXPECT_EQ(kind, "cpu (4.00 GiB, 1 core, 60 GFLOP/s and 8 GB/s a slot)");
  EXPECT_EQ(KindOf(ClusterName(kind, 2)), kind);
  const auto cluster = ClusterOf(worker, 2);
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  EXPECT_EQ(cluster->name(), "2 slots of " + kind);
  EXPECT_EQ(cluster->device().memory_bytes(), int64_t{4} << 30) << "what every worker of the kind has";
  EXPECT_EQ(cluster->host_cores(), 2);
  const auto with = [&](const auto& change) {
    v1::Worker other = worker;
    change(&other);
    return SlotKind(other);
  };
  EXPECT_EQ(with([](auto* w) { w->set_host_memory_bytes(w->host_memory_bytes() - 999); }), kind);
  EXPECT_EQ(with([](auto* w) { w->mutable_device()->set_memory_bandwidth_bytes_per_second(8.04e9); }), kind);
  EXPECT_EQ(with([](auto* w) { w->set_slots(8), w->set_host_cores(8), w->set_host_memory_bytes(int64_t{32} << 30); }), kind);
  EXPECT_NE(with([](auto* w) { w->set_host_memory_bytes(int64_t{15} << 30); }), kind);
  EXPECT_NE(with([](auto* w) { w->set_host_cores(2); }), kind);
  EXPECT_NE(with([](auto* w) { w->mutable_device()->set_memory_bandwidth_bytes_per_second(4e9); }), kind);
  EXPECT_NE(with([](auto* w) { w->mutable_device()->set_type("other"); }), kind);
}

TEST_F(PlacingTest, AJobRunsWhereItWasPlannedForAndNotWhereItFitsTightest) {
  TestAgent fast("a", 8);
  SlowAgent slow("b", 2);
  Connect(&fast);
  Connect(&slow);
  const std::string job = Submit(2);
  EXPECT_EQ(fast.link.NextStart().lease().job(), job);
  EXPECT_EQ(Attempts(job)[0].predicted_step_seconds(), 0.5);
  EXPECT_THAT(History(job), ElementsAre(PLANNING, QUEUED, LEASED));
  EXPECT_THAT(PlannedFor(job), HasSubstr("2 slots of h100-sxm-80"));
}

TEST_F(PlacingTest, AJobForWhichOnlyOthersAreFreeIsPlannedForThemAndTheyAreKeptForIt) {
  TestAgent fast("a");
  SlowAgent slow("b", 2);
  const v1::LeaseId first = Begin(&fast).lease();
  const std::string job = Submit(2), behind = Submit(2);
  AwaitReason(job, "position 1");
  AwaitReason(behind, "position 2");
  hold_plans_ = true;
  Connect(&slow);
  const v1::Job moved = AwaitState(job, PLANNING);
  EXPECT_THAT(moved.reason(), HasSubstr("its recipe is for slots of h100-sxm-80 ("));
  EXPECT_THAT(moved.reason(), HasSubstr("and those that are free are of a100-sxm-40 ("));
  EXPECT_THAT(moved.reason(), HasSubstr("ranks recipes for 2 slots of workers/b"));
  AwaitDecision();
  AwaitDecision();
  EXPECT_EQ(Get(behind).state(), QUEUED) << "the slots are another's";
  hold_plans_ = false;
  EXPECT_EQ(slow.link.NextStart().lease().job(), job);
  EXPECT_GT(Attempts(job)[0].predicted_step_seconds(), 1.0) << "of the slots on which it runs";
  EXPECT_THAT(PlannedFor(job), HasSubstr("2 slots of a100-sxm-40"));
  EXPECT_THAT(History(job), ElementsAre(PLANNING, QUEUED, PLANNING, QUEUED, LEASED));
  ReportEnd(&fast, first, absl::OkStatus());
  EXPECT_EQ(fast.link.NextStart().lease().job(), behind);
}

TEST_F(PlacingTest, ARestartOnAnotherKindOfWorkerIsPlannedForItAndGoesOnFromTheCheckpoint) {
  TestAgent fast("a");
  SlowAgent slow("b", 2);
  const v1::StartAttempt start = Begin(&fast);
  const std::string job = start.lease().job();
  EXPECT_TRUE(Commit(&fast, start.lease(), 3).commit());
  controller_->Disconnected(fast.session);
  skew_seconds_ = 1100;
  AwaitState(job, RESTARTING);
  Connect(&slow);
  const v1::StartAttempt again = slow.link.NextStart();
  EXPECT_EQ(again.resume_step(), 3);
  EXPECT_EQ(again.recipe().training().global_batch_size(), start.recipe().training().global_batch_size());
  ASSERT_EQ(Attempts(job).size(), 2);
  EXPECT_GT(Attempts(job)[1].predicted_step_seconds(), 1.0);
  EXPECT_THAT(History(job), ElementsAre(PLANNING, QUEUED, LEASED, RESTARTING, PLANNING, QUEUED, LEASED));
}

TEST_F(PlacingTest, TheNextServerKnowsWhatAJobWasPlannedFor) {
  TestAgent fast("a");
  Connect(&fast);
  Submit(2);
  fast.link.NextStart();
  const std::string job = Submit(2);
  AwaitReason(job, "position 1");
  StopController();
  StartController();
  SlowAgent slow("b", 2);
  Connect(&slow);
  EXPECT_EQ(slow.link.NextStart().lease().job(), job);
  EXPECT_GT(Attempts(job)[0].predicted_step_seconds(), 1.0);
  EXPECT_EQ(Plans(job), 2);
}

// Whichever kind it is planned for is taken by another, and the other one is free.
TEST_F(PlacingTest, WhereTwoKindsAreFreeByTurnsAJobIsPlannedThriceAndThenWaitsForItsOwn) {
  TestAgent fast("a");
  SlowAgent slow("b", 2);
  const v1::LeaseId first = Begin(&fast).lease();
  const std::string job = Submit(2);
  AwaitReason(job, "position 1");
  hold_plans_ = true;
  Connect(&slow);
  AwaitState(job, PLANNING);
  InsertUrgent();
  hold_plans_ = false;
  const v1::LeaseId second = slow.link.NextStart().lease();
  EXPECT_NE(second.job(), job);
  AwaitReason(job, "position 1");
  hold_plans_ = true;
  ReportEnd(&fast, first, absl::OkStatus());
  AwaitState(job, PLANNING);
  InsertUrgent();
  hold_plans_ = false;
  EXPECT_NE(fast.link.NextStart().lease().job(), job);
  AwaitReason(job, "position 1");
  ReportEnd(&slow, second, absl::OkStatus());
  AwaitReason(job, "none is free in pool default of the kind that it is planned for");
  for (int i = 0; i < 5; ++i) AwaitDecision();
  EXPECT_EQ(Get(job).state(), QUEUED);
  EXPECT_EQ(Plans(job), 3);
  // Where there is none of its kind any more, it has no reason to wait for it.
  controller_->Disconnected(fast.session);
  EXPECT_EQ(slow.link.NextStart().lease().job(), job);
  EXPECT_EQ(Plans(job), 4);
}

TEST_F(PlacingTest, SlotsForWhichNoRecipeFitsAreLeftToOthers) {
  TestAgent fast("a");
  SlowAgent slow("b", 2);
  const v1::LeaseId first = Begin(&fast).lease();
  const std::string job = Submit(2);
  AwaitReason(job, "position 1");
  const std::string planned_for = PlannedFor(job);
  largest_world_ = 0;
  Connect(&slow);
  AwaitReason(job, "none is free in pool default of the kind that it is planned for");
  for (int i = 0; i < 3; ++i) AwaitDecision();
  EXPECT_EQ(Plans(job), 2);
  EXPECT_EQ(PlannedFor(job), planned_for) << "the plan is that of its recipe";
  largest_world_ = 64;
  const std::string other = Submit(2);
  EXPECT_EQ(slow.link.NextStart().lease().job(), other);
  ReportEnd(&fast, first, absl::OkStatus());
  EXPECT_EQ(fast.link.NextStart().lease().job(), job);
  EXPECT_EQ(Attempts(job)[0].predicted_step_seconds(), 0.5);
}

// Every decision meets them again.
TEST_F(PlacingTest, SlotsThatNothingCanBePlannedForAreLoggedOnce) {
  std::atomic<int> logged = 0;
  SetLogSink([&](std::string_view line) { logged += line.find("no plan: ") != std::string_view::npos; });
  TestAgent odd("a");
  odd.hello.mutable_worker()->mutable_device()->set_node_link("none-such");
  Connect(&odd);
  const std::string job = Submit(2);
  AwaitReason(job, "none-such");
  for (int i = 0; i < 3; ++i) AwaitDecision();
  EXPECT_EQ(logged.load(), 1);
  EXPECT_EQ(Get(job).state(), SUBMITTED);
  const std::string other = Submit(2);
  AwaitReason(other, "none-such");
  EXPECT_EQ(logged.load(), 2) << "of each job";
  SetLogSink({});
}

TEST_F(PlacingTest, TheMostUrgentJobIsPlannedNext) {
  hold_plans_ = true;
  TestAgent agent("a", 64);
  Connect(&agent);
  std::vector<std::string> low;
  for (int i = 0; i < 6; ++i) low.push_back(Submit(2));
  AwaitState(low[0], PLANNING);
  AwaitReason(low[5], "waits for the planner");
  const std::string high = SubmitWith(2, [](v1::JobSpec* spec) { spec->mutable_policy()->set_priority(1000); });
  AwaitReason(high, "waits for the planner");
  hold_plans_ = false;
  std::vector<std::string> order;
  for (int i = 0; i < 7; ++i) order.push_back(agent.link.NextStart().lease().job());
  EXPECT_THAT(order, ElementsAre(low[0], high, low[1], low[2], low[3], low[4], low[5]));
}

TEST_F(PlacingTest, BesideAJobThatWaitsOnlyThoseAreStartedThatEndBeforeItCan) {
  TestAgent agent("a", 4);
  Connect(&agent);
  const auto steps = [](int64_t count) {
    return [count](v1::JobSpec* spec) { spec->mutable_recipe()->mutable_training()->set_steps(count); };
  };
  SubmitWith(2, steps(1000));
  ReportStep(&agent, agent.link.NextStart().lease(), 1);  // 999 steps of half a second are left
  const std::string head = SubmitWith(4, steps(10));
  EXPECT_THAT(AwaitReason(head, "position 1").reason(), HasSubstr("expected to start at "));
  const std::string longer = SubmitWith(2, steps(2000));
  EXPECT_THAT(AwaitReason(longer, "position 2").reason(), HasSubstr(absl::StrCat("kept for ", head)));
  const std::string shorter = SubmitWith(2, steps(100));
  EXPECT_EQ(agent.link.NextStart().lease().job(), shorter);
  AwaitDecision();
  EXPECT_EQ(Get(longer).state(), QUEUED);
  EXPECT_EQ(Get(head).state(), QUEUED);
}

// Jobs that wait: what is said of them, and what that costs.

constexpr int64_t kMany = 10'000;

class WaitingTest : public FleetTest {
 protected:
  // Jobs for two slots, as the next controller finds them.
  std::vector<std::string> InsertMany(v1::JobState state) {
    StopController();
    std::vector<v1::Job> jobs;
    std::vector<std::string> names;
    for (int64_t i = 0; i < kMany; ++i) {
      v1::Job& job = jobs.emplace_back(MakeJob(2, 2));
      job.set_state(state);
      if (state == QUEUED) job.set_world_size(2);
      names.push_back(job.name());
    }
    Insert(jobs);
    StartController();
    return names;
  }
  // Every change of a stored job gives it the next version; all began with 1.
  int64_t RowsWritten(const std::vector<std::string>& names) {
    int64_t rows = 0;
    for (const std::string& name : names) rows += Get(name).version() - 1;
    return rows;
  }
};

TEST_F(WaitingTest, ReasonsOfTenThousandSubmittedJobsAreExactAndNeverStored) {
  const std::vector<std::string> jobs = InsertMany(SUBMITTED);
  AwaitReason(jobs.back(), "no worker of pool default");
  const int64_t writes = store_->writes;
  constexpr int kTimes = 4;
  for (int i = 0; i < kTimes; ++i) {
    TestAgent agent("a", 1);
    Connect(&agent);
    AwaitReason(jobs.back(), "resources.min_slots is 2 and the largest worker of pool default has 1 slot;");
    AwaitReason(jobs.front(), "connect a worker with at least 2 slots");
    controller_->Disconnected(agent.session);
    AwaitReason(jobs.back(), "no worker of pool default is connected and ready: start an agent");
  }
  EXPECT_EQ(store_->writes - writes, kTimes) << "one for each connection";
  EXPECT_EQ(RowsWritten(jobs), 0);
}

TEST_F(WaitingTest, PlacesOfTenThousandQueuedJobsAreExactAndNeverStored) {
  const std::vector<std::string> jobs = InsertMany(QUEUED);
  Connect(&agent_);
  constexpr int kRun = 4;
  for (int i = 0; i < kRun; ++i) {
    const v1::LeaseId lease = agent_.link.NextStart().lease();
    EXPECT_EQ(lease.job(), jobs[i]);
    Await(jobs.back(), [&](const v1::Job& now) { return now.queue_position() == kMany - 1 - i; });
    EXPECT_THAT(Get(jobs[5000]).reason(), HasSubstr(absl::StrCat("position ", 5000 - i)));
    ReportEnd(&agent_, lease, absl::OkStatus());
  }
  agent_.link.NextStart();
  Await(jobs.back(), [&](const v1::Job& now) { return now.queue_position() == kMany - 1 - kRun; });
  EXPECT_EQ(RowsWritten({jobs.begin() + kRun + 1, jobs.end()}), 0);
  EXPECT_EQ(RowsWritten({jobs.begin(), jobs.begin() + kRun}), 2 * kRun) << "each was leased and ended";
}

TEST_F(WaitingTest, AJobThatFitsNoWorkerAnyMoreSaysWhichFieldForbidsFewer) {
  TestAgent large("a", 4), small("b", 2);
  const std::string job = Submit(4, 4);
  Connect(&large);
  ReportStep(&large, large.link.NextStart().lease(), 1);
  controller_->Disconnected(large.session);
  skew_seconds_ = 1100;
  AwaitState(job, RESTARTING);
  Connect(&small);
  AwaitReason(job, "resources.min_slots is 4 and the largest worker of pool default has 2 slots");
  const v1::Job waits = Get(job);
  EXPECT_THAT(waits.reason(), HasSubstr("nothing was heard of workers/a"));
  EXPECT_THAT(waits.reason(), HasSubstr("connect a worker with at least 4 slots, or cancel the job"));
  EXPECT_EQ(waits.queue_position(), 1);
  EXPECT_EQ(Plans(job), 1);
}

TEST_F(WaitingTest, APlanForFewerSlotsThatFitsNothingIsNotMadeAgainUntilOtherSlotsAreThere) {
  TestAgent large("a", 8), small("b", 2), middle("c", 4);
  const std::string job = Submit(8, 2);
  Connect(&large);
  EXPECT_TRUE(Commit(&large, large.link.NextStart().lease(), 3).commit());
  largest_world_ = 0;
  controller_->Disconnected(large.session);
  skew_seconds_ = 1100;
  AwaitState(job, RESTARTING);
  Connect(&small);
  AwaitReason(job, "it waits for a worker with 8 slots, or for other slots to be planned for");
  EXPECT_THAT(Get(job).reason(), HasSubstr("for 2, no recipe fits"));
  for (int i = 0; i < 5; ++i) AwaitDecision();
  EXPECT_EQ(Plans(job), 2) << "the first, and once for two slots";
  EXPECT_EQ(Get(job).state(), RESTARTING);
  largest_world_ = 64;
  Connect(&middle);
  EXPECT_EQ(middle.link.NextStart().world_size(), 4);
  EXPECT_EQ(Plans(job), 3);
}

}  // namespace
}  // namespace legoai::server
