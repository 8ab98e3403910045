// A job over several workers as the server sees it: what they are offered for, what each is told, and that what befalls one of
// them befalls all.
#include <gmock/gmock.h>

#include <string>
#include <utility>
#include <vector>

#include "core/hardware/catalog.h"
#include "core/model/catalog.h"
#include "core/model/model_facts.h"
#include "core/recipe/recipe.h"
#include "planner/legal.h"
#include "server/fleet/offers.h"
#include "server/fleet/testing/fleet_fixture.h"
#include "server/jobs/transition.h"

namespace legoai::server {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using namespace v1;  // the states' names

// One that may train together with others.
struct Member : TestAgent {
  Member(const std::string& name, int64_t slots, const std::string& rack = "") : TestAgent(name, slots) {
    v1::Worker& worker = *hello.mutable_worker();
    worker.set_host(name);
    worker.set_gang_address("10.0.0." + std::to_string(name[0] - 'a' + 1));
    worker.set_first_gang_port(29500);
    worker.set_gang_ports(10);
    if (!rack.empty()) (*worker.mutable_labels())[kRackLabel] = rack;
  }
};

class GangTest : public FleetTest {
 protected:
  // Connects both, which get a job of two slots, one each.
  std::string BeginOnBoth(int64_t max_restarts = 1) {
    Connect(&a_);
    Connect(&b_);
    const std::string job = Submit(2, 2, max_restarts);
    first_ = a_.link.NextStart();
    second_ = b_.link.NextStart();
    return job;
  }
  static bool IsRevoked(const ToAgent& message, int64_t epoch) {
    const auto& revoked = message.heartbeat().revoked();
    return std::any_of(revoked.begin(), revoked.end(), [&](const LeaseId& lease) { return lease.epoch() == epoch; });
  }
  static std::vector<std::string> WorkersOf(const Attempt& attempt) {
    std::vector<std::string> workers;
    for (const Placement& placement : attempt.placements()) workers.push_back(placement.worker());
    return workers;
  }

  Member a_{"a", 1}, b_{"b", 1};
  StartAttempt first_, second_;
};

v1::Worker Shown(const Member& member) {
  v1::Worker worker = member.hello.worker();
  worker.set_connected(true);
  worker.set_state(READY);
  return worker;
}

v1::Resources Wanted(int64_t slots, int64_t min_slots = 1) {
  v1::Resources wanted;
  wanted.set_pool("default");
  wanted.set_slots(slots);
  wanted.set_min_slots(min_slots);
  return wanted;
}

TEST(Offers, OfSeveralWorkersAreForJobsThatFitOnNone) {
  Offers offers({Shown(Member("a", 4)), Shown(Member("b", 4)), Shown(Member("c", 2))});
  EXPECT_EQ(offers.To(Wanted(4)).workers, 1);
  EXPECT_EQ(offers.To(Wanted(8)).workers, 2);
  EXPECT_EQ(offers.To(Wanted(8)).slots, 4);
  // As many on each: 3 x 2 are fewer than 2 x 4.
  EXPECT_EQ(offers.To(Wanted(10)).workers, 2);
  EXPECT_EQ(offers.To(Wanted(6)).slots * offers.To(Wanted(6)).workers, 6);
  EXPECT_EQ(offers.To(Wanted(9, 9)).worker, nullptr);
  EXPECT_THAT(offers.WhyNone(Wanted(9, 9)), HasSubstr("of one kind that see the same runs, of which 2 have 8 together"));
  EXPECT_TRUE(offers.Has(Wanted(8), 3, 2));
  EXPECT_FALSE(offers.Has(Wanted(8), 3, 3));
}

TEST(Offers, MixedKindsAreRefusedByName) {
  Member other("b", 2);
  *other.hello.mutable_worker()->mutable_device() = *sim::FindDevice("a100-sxm-40");
  Offers offers({Shown(Member("a", 2)), Shown(other)});
  EXPECT_EQ(offers.To(Wanted(4, 4)).worker, nullptr);
  const std::string why = offers.WhyNone(Wanted(4, 4));
  EXPECT_THAT(why, HasSubstr("as many on each of several of one kind that see the same runs; there are a100-sxm-40 ("));
  EXPECT_THAT(why, HasSubstr(", and h100-sxm-80 ("));
  EXPECT_EQ(offers.To(Wanted(4)).workers, 1) << "two are enough for it";
}

TEST(Offers, WorkersThatSeeOtherRunsOrReachNobodyTrainAlone) {
  Member elsewhere("b", 2), loopback("c", 2), silent("d", 2);
  elsewhere.hello.mutable_worker()->set_runs("/other");
  loopback.hello.mutable_worker()->set_gang_address("127.0.0.1");
  silent.hello.mutable_worker()->clear_gang_address();
  Offers offers({Shown(Member("a", 2)), Shown(elsewhere), Shown(loopback), Shown(silent)});
  EXPECT_EQ(offers.To(Wanted(4, 4)).worker, nullptr);
}

// A tray of a GB200 NVL72 rack.
struct Tray : Member {
  Tray(const std::string& name, const std::string& domain) : Member(name, 4) {
    v1::Worker& worker = *hello.mutable_worker();
    *worker.mutable_device() = *sim::FindDevice("gb200-nvl72");
    if (!domain.empty()) (*worker.mutable_labels())[kNvlinkDomainLabel] = domain;
  }
};

// The step of shards over all devices, of a small model.
sim::RooflineEstimate StepOf(const v1::Cluster& cluster) {
  v1::PlanRequest request;
  *request.mutable_model() = model::ResolveModel("llama3-1b").value();
  *request.mutable_cluster() = cluster;
  v1::Recipe recipe = parallel::DefaultRecipe();
  recipe.mutable_training()->set_local_batch_size(1);
  recipe.mutable_training()->set_seq_len(2048);
  recipe.mutable_parallelism()->set_data_parallel_shard_degree(cluster.devices_per_node() * cluster.nodes());
  const auto step = planner::EstimateTime(request, recipe);
  EXPECT_TRUE(step.ok()) << step.status();
  return step.ok() ? *step : sim::RooflineEstimate();
}

TEST(Offers, WorkersOfOneNvlinkDomainArePlannedWithItsLink) {
  const v1::Worker tray = Shown(Tray("a", "d1"));
  const v1::Cluster within = ClusterOf(tray, 4, 3, /*in_domain=*/true).value(), across = ClusterOf(tray, 4, 3).value();
  const v1::Cluster rack = sim::ParseCluster("gb200-nvl72:12x1").value();
  EXPECT_EQ(within.name(), "3 workers in one NVLink domain with 4 slots of " + SlotKind(tray));
  EXPECT_EQ(KindOf(within.name()), SlotKind(tray));
  EXPECT_TRUE(IsInDomain(within.name()));
  EXPECT_FALSE(IsInDomain(across.name()));
  EXPECT_EQ(within.nodes(), 3);
  ASSERT_TRUE(sim::CheckCluster(within).ok());
  // What gathers and reductions take is what it is in a rack, and what the alpha-beta model says of its link.
  EXPECT_DOUBLE_EQ(StepOf(within).step_seconds, StepOf(rack).step_seconds);
  EXPECT_LT(StepOf(within).step_seconds, StepOf(across).step_seconds);
  const sim::LinkLoad shards = StepOf(within).loads[static_cast<size_t>(sim::LinkUse::kShard)];
  const v1::Link nvlink = *sim::FindLink("nvlink5-nvl72");
  EXPECT_EQ(shards.tier, 0);
  EXPECT_DOUBLE_EQ(shards.bytes_per_second, nvlink.bandwidth_bytes_per_second() * nvlink.efficiency());
  // Two gathers and a reduction of all parameters, eleven twelfths of which come over the link.
  const double parameters = static_cast<double>(model::ParameterCount(model::ResolveModel("llama3-1b").value()));
  EXPECT_NEAR(shards.bytes, 11.0 / 12 * parameters * (2 + 2 + 4), 0.01 * shards.bytes);
}

TEST(Offers, OnlyWorkersThatAreAllInOneDomainWhichJoinsTheirSlotsAreInIt) {
  const auto in_domain = [](const std::vector<v1::Worker>& workers, int64_t slots) {
    Offers offers(workers);
    EXPECT_NE(offers.To(Wanted(slots, slots)).worker, nullptr);
    return offers.To(Wanted(slots, slots)).in_domain;
  };
  const v1::Worker a = Shown(Tray("a", "d1")), b = Shown(Tray("b", "d1")), c = Shown(Tray("c", "d2")), d = Shown(Tray("d", ""));
  EXPECT_TRUE(in_domain({a, b, c, d}, 8));
  EXPECT_FALSE(in_domain({a, b, c, d}, 12));
  EXPECT_FALSE(in_domain({a, c, d}, 8));
  EXPECT_FALSE(in_domain({d, Shown(Tray("e", ""))}, 8)) << "nobody says so";
  EXPECT_FALSE(in_domain({a, b, c}, 4)) << "on one worker";
  v1::Worker other_rack = b;
  (*other_rack.mutable_labels())[kRackLabel] = "r2";
  EXPECT_FALSE(in_domain({a, other_rack}, 8));
  const Offers offers({a, b, c});
  EXPECT_TRUE(offers.AreInDomain({"workers/a", "workers/b"}, 4));
  EXPECT_FALSE(offers.AreInDomain({"workers/a", "workers/c"}, 4));
  EXPECT_FALSE(offers.AreInDomain({"workers/a"}, 4));
  EXPECT_FALSE(offers.AreInDomain({"workers/a", "workers/gone"}, 4));
  // More than NVLink of such boards is known to join.
  Member one("a", 8), two("b", 8);
  for (Member* member : {&one, &two}) (*member->hello.mutable_worker()->mutable_labels())[kNvlinkDomainLabel] = "d1";
  EXPECT_FALSE(in_domain({Shown(one), Shown(two)}, 16));
}

TEST_F(GangTest, NoTimeIsPredictedOfARecipeForADomainThatItsWorkersAreNotIn) {
  Tray a("a", "d1"), b("b", "d1"), c("c", "d2");
  Connect(&a);
  Connect(&b);
  const std::string within = Submit(8, 8);
  const v1::LeaseId lease = a.link.NextStart().lease();
  EXPECT_TRUE(Attempts(within)[0].has_predicted_step_seconds());
  const std::string outside = Submit(8, 8);
  AwaitReason(outside, "position 1");
  largest_world_ = 4;  // what is planned from now on is in vain
  Connect(&c);
  ASSERT_TRUE(Drain("workers/b", /*undo=*/false, /*let_finish=*/true).ok());
  ReportEnd(&a, lease, absl::OkStatus());
  EXPECT_EQ(a.link.NextStart().lease().job(), outside);
  EXPECT_THAT(WorkersOf(Attempts(outside)[0]), ElementsAre("workers/a", "workers/c"));
  EXPECT_FALSE(Attempts(outside)[0].has_predicted_step_seconds());
  EXPECT_GT(Attempts(outside)[0].predicted_peak_memory_bytes(), 0) << "which hangs on no link";
  EXPECT_THAT(Get(outside).reason(), HasSubstr("for workers in one NVLink domain, which these are not"));
}

TEST_F(GangTest, EachWorkerIsToldItsPartUnderOneEpoch) {
  const std::string job = BeginOnBoth();
  EXPECT_EQ(first_.world_size(), 2);
  EXPECT_EQ(first_.lease().epoch(), second_.lease().epoch());
  EXPECT_EQ(first_.placement().first_rank(), 0);
  EXPECT_EQ(second_.placement().first_rank(), 1);
  EXPECT_EQ(second_.placement().worker(), "workers/b");
  EXPECT_EQ(first_.gang().index(), 0);
  EXPECT_EQ(second_.gang().index(), 1);
  EXPECT_EQ(second_.gang().workers(), 2);
  EXPECT_EQ(second_.gang().address(), "10.0.0.1");
  EXPECT_GE(second_.gang().port(), 29500);
  EXPECT_LT(second_.gang().port(), 29510);
  EXPECT_EQ(first_.gang().port(), second_.gang().port());
  EXPECT_EQ(second_.gang().first_worker(), "workers/a");
  EXPECT_EQ(Get(job).worker_count(), 2);
  EXPECT_THAT(Get(job).reason(), HasSubstr("1 slot of each of workers/a, workers/b"));
  EXPECT_THAT(WorkersOf(Attempts(job)[0]), ElementsAre("workers/a", "workers/b"));
  for (const v1::Worker& worker : controller_->Workers()) EXPECT_EQ(worker.used_size(), 1) << worker.name();
}

TEST_F(GangTest, GangsThatBeginOnOneHostMeetAtPortsOfTheirOwn) {
  Member a("a", 2), b("b", 2), c("c", 2);
  for (Member* member : {&a, &b, &c}) {
    member->hello.mutable_worker()->set_gang_ports(2);
    Connect(member);
  }
  for (int i = 0; i < 8; ++i) {  // by chance each pair would be apart every other time
    Submit(3, 3);
    Submit(3, 3);
    const StartAttempt one = a.link.NextStart(), other = a.link.NextStart();
    EXPECT_NE(std::pair(one.gang().address(), one.gang().port()), std::pair(other.gang().address(), other.gang().port()));
    ReportEnd(&a, one.lease(), absl::OkStatus());
    ReportEnd(&a, other.lease(), absl::OkStatus());
  }
}

TEST_F(GangTest, TheFirstWorkerAloneTellsHowItGoes) {
  const std::string job = BeginOnBoth();
  ReportStep(&b_, second_.lease(), 1);
  AskForCommit(&b_, second_.lease(), 3);
  const CommitAnswer denied = b_.link.Next([](const ToAgent& message) { return message.has_commit(); }).commit();
  EXPECT_FALSE(denied.commit());
  EXPECT_TRUE(Metrics(job).empty());
  ReportEnd(&b_, second_.lease(), absl::OkStatus());
  EXPECT_EQ(Get(job).state(), LEASED);
  ReportStep(&a_, first_.lease(), 1);
  EXPECT_EQ(Metrics(job).size(), 1);
  EXPECT_TRUE(Commit(&a_, first_.lease(), 3).commit());
  ReportEnd(&a_, first_.lease(), absl::OkStatus());
  EXPECT_EQ(Get(job).state(), SUCCEEDED);
  for (const v1::Worker& worker : controller_->Workers()) EXPECT_EQ(worker.used_size(), 0) << worker.name();
}

TEST_F(GangTest, AWorkerThatFailsEndsTheAttemptForAllAndIsNamed) {
  const std::string job = BeginOnBoth();
  Report(&b_, second_.lease(), [](Telemetry* fact) {
    fact->mutable_member_ended()->mutable_error()->set_code(static_cast<int>(absl::StatusCode::kFailedPrecondition));
    fact->mutable_member_ended()->mutable_error()->set_message("no folder");
  });
  AwaitState(job, FAILED);
  EXPECT_EQ(Get(job).outcome().error().message(), "workers/b: no folder");
  Beat(&a_, {first_.lease()});
  a_.link.Next([&](const ToAgent& message) { return IsRevoked(message, first_.lease().epoch()); });
}

TEST_F(GangTest, AMemberThatHasEndedAsTheFirstSaysEndsNothing) {
  const std::string job = BeginOnBoth();
  Report(&b_, second_.lease(), [](Telemetry* fact) { fact->mutable_member_ended(); });
  EXPECT_EQ(Get(job).state(), LEASED);
}

// The first worker's word may be the last to come: a member that has ended may leave, come back and be silent before it.
TEST_F(GangTest, AMemberThatHasEndedMayLeaveBeforeTheFirstSaysHowItEnded) {
  const std::string job = BeginOnBoth();
  Report(&b_, second_.lease(), [](Telemetry* fact) { fact->mutable_member_ended(); });
  controller_->Goodbye(b_.session);
  controller_->Disconnected(b_.session);
  EXPECT_EQ(Get(job).state(), LEASED);
  Connect(&b_);  // the same process, which has no trainers any more
  EXPECT_EQ(Get(job).state(), LEASED);
  skew_seconds_ += 800;
  Beat(&a_, {first_.lease()});
  skew_seconds_ += 800;  // together longer than a lease lives
  Beat(&a_, {first_.lease()});
  AwaitDecision();
  EXPECT_EQ(Get(job).state(), LEASED);
  ReportEnd(&a_, first_.lease(), absl::OkStatus());
  EXPECT_EQ(Get(job).state(), SUCCEEDED);
  EXPECT_EQ(Attempts(job).size(), 1);
}

TEST_F(GangTest, RanksThatFailAreNotALossOfAMemberThatHasEndedAndLeft) {
  const std::string job = BeginOnBoth(/*max_restarts=*/0);
  Report(&b_, second_.lease(), [](Telemetry* fact) { fact->mutable_member_ended(); });
  controller_->Goodbye(b_.session);
  controller_->Disconnected(b_.session);
  ReportEnd(&a_, first_.lease(), absl::UnavailableError("rank 0 died"));
  AwaitState(job, FAILED);
  EXPECT_EQ(Attempts(job)[0].state(), "failed");
}

TEST_F(GangTest, TheFirstWorkerIsLostThoughAMemberHasEnded) {
  const std::string job = BeginOnBoth();
  Report(&b_, second_.lease(), [](Telemetry* fact) { fact->mutable_member_ended(); });
  controller_->Goodbye(a_.session);
  AwaitState(job, RESTARTING);
  EXPECT_EQ(Attempts(job)[0].state(), "lost");
}

TEST_F(GangTest, TheLossOfAnyMemberEndsTheAttemptForAllAndASpareTakesItsPlace) {
  const std::string job = BeginOnBoth();
  EXPECT_TRUE(Commit(&a_, first_.lease(), 3).commit());
  Member spare("c", 1);
  Connect(&spare);
  // It comes back as another process, without its trainers.
  controller_->Disconnected(b_.session);
  Member again("b", 1);
  again.hello.mutable_worker()->set_instance("b-2");
  Connect(&again);
  const StartAttempt next = a_.link.NextStart();
  EXPECT_EQ(next.lease().epoch(), first_.lease().epoch() + 1);
  EXPECT_EQ(next.resume_step(), 3);
  EXPECT_EQ(next.gang().workers(), 2);
  EXPECT_EQ(Attempts(job)[0].state(), "lost");
  EXPECT_EQ(Attempts(job).size(), 2);
}

TEST_F(GangTest, RanksThatLoseAPeerWhoseAgentIsGoneAreNoFailureOfTheJob) {
  const std::string job = BeginOnBoth(/*max_restarts=*/1);
  controller_->Disconnected(b_.session);
  ReportEnd(&a_, first_.lease(), absl::UnavailableError("host 1 is gone"));
  AwaitState(job, RESTARTING);
  EXPECT_EQ(Attempts(job)[0].state(), "lost");
  Connect(&b_);
  const StartAttempt next = b_.link.NextStart();
  EXPECT_EQ(next.lease().epoch(), 2);
  // Nor is it counted later, when ranks fail of themselves: this is the first time.
  Beat(&a_, {next.lease()});
  Beat(&b_, {next.lease()});
  ReportEnd(&a_, next.lease(), absl::UnavailableError("rank 0 died"));
  const v1::Job failed_once = Await(job, [](const v1::Job& now) { return now.restarts() == 2; });
  EXPECT_EQ(Attempts(job)[1].state(), "failed");
  EXPECT_NE(failed_once.state(), FAILED);
}

// Its connection stays open for long.
TEST_F(GangTest, APeerWhoseAgentIsSilentIsGoneAsWell) {
  const std::string job = BeginOnBoth(/*max_restarts=*/0);
  skew_seconds_ += 800;  // more than two heartbeats, less than a lease lives
  Beat(&a_, {first_.lease()});
  ReportEnd(&a_, first_.lease(), absl::UnavailableError("host 1 is gone"));
  AwaitState(job, RESTARTING);
  EXPECT_EQ(Attempts(job)[0].state(), "lost");
}

TEST_F(GangTest, AMemberThatLeavesIsGivenNothingMore) {
  const std::string job = BeginOnBoth();
  Member spare("c", 1);
  Connect(&spare);
  Report(&b_, second_.lease(), [](Telemetry* fact) { fact->mutable_member_ended()->set_left(true); });
  EXPECT_EQ(spare.link.NextStart().lease().job(), job);
  EXPECT_THAT(WorkersOf(Attempts(job)[1]), ElementsAre("workers/a", "workers/c"));
}

TEST_F(GangTest, WhereOneDoesNotComeBackTheJobIsPlannedForThoseThatAreLeft) {
  Member c("c", 1);
  Connect(&a_);
  Connect(&b_);
  Connect(&c);
  const std::string job = Submit(3, 2);
  const StartAttempt start = a_.link.NextStart();
  EXPECT_EQ(start.world_size(), 3);
  EXPECT_TRUE(Commit(&a_, start.lease(), 3).commit());
  controller_->Goodbye(c.session);
  controller_->Disconnected(c.session);
  const StartAttempt next = a_.link.NextStart();
  EXPECT_EQ(next.world_size(), 2);
  EXPECT_EQ(next.gang().workers(), 2);
  EXPECT_EQ(next.resume_step(), 3);
}

TEST_F(GangTest, TheNextServerKnowsAllParts) {
  const std::string job = BeginOnBoth();
  StopController();
  StartController();
  for (Member* member : {&a_, &b_}) {
    *member->hello.add_leases() = first_.lease();
    Connect(member);
  }
  AwaitDecision();
  EXPECT_EQ(Get(job).state(), LEASED);
  for (const v1::Worker& worker : controller_->Workers()) EXPECT_EQ(worker.used_size(), 1) << worker.name();
  ReportEnd(&a_, first_.lease(), absl::OkStatus());
  EXPECT_EQ(Get(job).state(), SUCCEEDED);
}

TEST_F(GangTest, WorkersOfOneRackAreTakenTogether) {
  Member a("a", 1, "r1"), b("b", 1, "r2"), c("c", 1, "r1");
  for (Member* member : {&a, &b, &c}) Connect(member);
  const std::string job = Submit(2, 2);
  a.link.NextStart();
  EXPECT_THAT(WorkersOf(Attempts(job)[0]), ElementsAre("workers/a", "workers/c"));
}

TEST_F(GangTest, AJobOfOneNvlinkDomainIsPlannedForIt) {
  for (Member* member : {&a_, &b_}) (*member->hello.mutable_worker()->mutable_labels())[kNvlinkDomainLabel] = "d1";
  const std::string job = BeginOnBoth();
  std::string planned;
  Write([&](store::Transaction& transaction) {
    planned = transaction.GetPlan(job).value()->cluster();
    return absl::OkStatus();
  });
  EXPECT_THAT(planned, testing::StartsWith("2 workers in one NVLink domain with 1 slot of h100-sxm-80"));
}

TEST_F(GangTest, AStopIsTheFirstWorkersToPassOn) {
  const std::string job = BeginOnBoth();
  Cancel(job, /*save=*/false);
  a_.link.Next([](const ToAgent& message) { return message.has_stop(); });
  AwaitDecision();
  EXPECT_FALSE(b_.link.Has([](const ToAgent& message) { return message.has_stop(); }));
  ReportEnd(&a_, first_.lease(), absl::OkStatus(), /*stopped=*/true);
  AwaitState(job, CANCELLED);
}

}  // namespace
}  // namespace legoai::server
