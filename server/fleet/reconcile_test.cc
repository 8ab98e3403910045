#include "server/fleet/reconcile.h"

#include <gtest/gtest.h>

#include <optional>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/hardware/catalog.h"
#include "core/process/build_version.h"

namespace legoai::server {
namespace {

constexpr int64_t kNowUs = 1'700'000'000'000'000;

v1::Worker MakeWorker(const std::string& name, const std::string& device, int64_t slots) {
  v1::Worker worker;
  worker.set_name(name);
  worker.set_pool("default");
  worker.set_slots(slots);
  worker.set_connected(true);
  worker.set_state(v1::READY);
  worker.set_build_version(std::string(launch::BuildVersion()));
  *worker.mutable_device() = sim::FindDevice(device).value();
  return worker;
}

v1::Job MakeJob(int64_t number, v1::JobState state, int64_t slots) {
  v1::Job job;
  job.set_name(absl::StrCat("projects/default/jobs/01J0000000000000000000000", number));
  job.set_state(state);
  job.set_version(1);
  job.set_create_time_us(number);
  job.mutable_spec()->mutable_resources()->set_pool("default");
  job.mutable_spec()->mutable_resources()->set_slots(slots);
  job.mutable_spec()->mutable_resources()->set_min_slots(slots);
  if (state != v1::SUBMITTED) job.set_world_size(slots);
  return job;
}

class ReconcileTest : public testing::Test {
 protected:
  // The decision over these, with everybody connected and all slots free but those of leases_.
  Reconciliation Decide(const std::vector<v1::Worker>& workers, const std::vector<v1::Job>& jobs, absl::Duration now = {}) {
    jobs_.Begin(jobs);
    offers_.emplace(workers);
    FleetSnapshot snapshot{
        .now_us = kNowUs, .now = now, .replan_grace = absl::Seconds(30), .jobs = &jobs_, .workers = {}, .leases = leases_};
    snapshot.preempts = preempts_;
    for (const v1::Worker& worker : workers) {
      snapshot.workers.push_back({.name = worker.name(),
                                  .pool = worker.pool(),
                                  .device_type = worker.device().type(),
                                  .slots = worker.slots(),
                                  .free = worker.slots(),
                                  .kind = SlotKind(worker),
                                  .gang = GangOf(worker),
                                  .place = TopologyOf(worker)});
      for (const Lease& lease : leases_) snapshot.workers.back().free -= lease.worker == worker.name() ? lease.slots : 0;
      if (worker.health().checking()) snapshot.workers.back().checked = std::exchange(snapshot.workers.back().free, 0);
    }
    return Reconcile(snapshot, &*offers_, &memory_);
  }

  ActiveJobs jobs_{nullptr};
  std::optional<Offers> offers_;
  PlanningMemory memory_;
  std::vector<Lease> leases_;
  bool preempts_ = false;
};

TEST_F(ReconcileTest, AQueuedJobGetsSlotsOfItsKind) {
  const v1::Worker worker = MakeWorker("workers/a", "h100-sxm-80", 8);
  const v1::Job job = MakeJob(1, v1::QUEUED, 4);
  memory_.planned[job.name()].kind = SlotKind(worker);
  const Reconciliation decision = Decide({worker}, {job});
  ASSERT_EQ(decision.grants.size(), 1u);
  EXPECT_EQ(decision.grants[0].workers.at(0), "workers/a");
  EXPECT_EQ(decision.grants[0].slots, 4);
  EXPECT_TRUE(decision.to_plan.empty());
  EXPECT_TRUE(decision.waits.empty());
}

TEST_F(ReconcileTest, SlotsOfAnotherKindArePlannedForFirst) {
  const v1::Worker worker = MakeWorker("workers/a", "a100-sxm-80", 8);
  const v1::Job job = MakeJob(1, v1::QUEUED, 4);
  memory_.planned[job.name()].kind = SlotKind(MakeWorker("workers/b", "h100-sxm-80", 8));
  const Reconciliation decision = Decide({worker}, {job});
  EXPECT_TRUE(decision.grants.empty());
  ASSERT_EQ(decision.to_plan.size(), 1u);
  EXPECT_TRUE(decision.to_plan[0].moves());
  EXPECT_EQ(decision.to_plan[0].worker->name(), "workers/a");
  EXPECT_NE(decision.to_plan[0].because.find("its recipe is for slots of h100-sxm-80"), std::string::npos);
  // Where plans for these were in vain, it waits for those that it has a recipe for.
  memory_.refusals[job.name()].tries[ClusterName(SlotKind(worker), 4)] = kMostTries;
  memory_.refusals[job.name()].text = "for 4, no recipe fits";
  const Reconciliation after = Decide({worker}, {job});
  EXPECT_TRUE(after.grants.empty());
  EXPECT_TRUE(after.to_plan.empty());
  EXPECT_NE(after.waits.at(job.name()).reason.find("no recipe fits"), std::string::npos) << after.waits.at(job.name()).reason;
}

TEST_F(ReconcileTest, ARecipeForOneNvlinkDomainIsMadeAnewWhereTwoAreFree) {
  std::vector<v1::Worker> workers;
  for (const char* const name : {"workers/a", "workers/b"}) {
    v1::Worker& worker = workers.emplace_back(MakeWorker(name, "gb200-nvl72", 4));
    worker.set_gang_address("10.0.0.1");
    (*worker.mutable_labels())[kNvlinkDomainLabel] = name;
  }
  v1::Job job = MakeJob(1, v1::QUEUED, 8);
  job.set_worker_count(2);
  PlanningMemory::Planned& planned = memory_.planned[job.name()];
  planned = {.kind = SlotKind(workers[0]), .in_domain = true};
  const Reconciliation decision = Decide(workers, {job});
  EXPECT_TRUE(decision.grants.empty());
  ASSERT_EQ(decision.to_plan.size(), 1u);
  EXPECT_TRUE(decision.to_plan[0].moves());
  EXPECT_FALSE(decision.to_plan[0].in_domain);
  EXPECT_EQ(decision.to_plan[0].workers, 2);
  EXPECT_EQ(decision.to_plan[0].because, "its recipe is for workers in one NVLink domain, and those that are free are not: ");
  // It does not wait for a domain for ever, and one that was not asked for does no harm.
  planned.moves = 2;
  const Reconciliation granted = Decide(workers, {job});
  EXPECT_EQ(granted.grants.size(), 1u);
  EXPECT_EQ(granted.outside_domain.count(job.name()), 1u);
  planned = {.kind = SlotKind(workers[0])};
  EXPECT_EQ(Decide(workers, {job}).grants.size(), 1u);
  EXPECT_TRUE(Decide(workers, {job}).outside_domain.empty());
  for (v1::Worker& worker : workers) (*worker.mutable_labels())[kNvlinkDomainLabel] = "d1";
  planned.in_domain = true;
  EXPECT_EQ(Decide(workers, {job}).grants.size(), 1u);
  EXPECT_EQ(Decide(workers, {job}).grants[0].workers.size(), 2u);
  // What is planned for slots of another kind in a domain is planned for that domain.
  planned.kind = "another";
  const Reconciliation moved = Decide(workers, {job});
  ASSERT_EQ(moved.to_plan.size(), 1u);
  EXPECT_TRUE(moved.to_plan[0].in_domain);
  const Reconciliation with_new = Decide(workers, {MakeJob(2, v1::SUBMITTED, 8)});
  ASSERT_EQ(with_new.to_plan.size(), 2u);
  EXPECT_TRUE(with_new.to_plan[0].in_domain);
  EXPECT_TRUE(with_new.to_plan[1].in_domain);
}

// What was refused for a domain is refused by its name, which is another one than that of the same workers without.
TEST_F(ReconcileTest, PlansForADomainThatWereInVainAreNotAskedForAgain) {
  std::vector<v1::Worker> workers;
  for (const char* const name : {"workers/a", "workers/b"}) {
    v1::Worker& worker = workers.emplace_back(MakeWorker(name, "gb200-nvl72", 4));
    worker.set_gang_address("10.0.0.1");
    (*worker.mutable_labels())[kNvlinkDomainLabel] = "d1";
  }
  v1::Job job = MakeJob(1, v1::QUEUED, 8);
  job.set_worker_count(2);
  memory_.planned[job.name()].kind = "another";
  const std::string kind = SlotKind(workers[0]);
  ASSERT_TRUE(Decide(workers, {job}).to_plan.at(0).in_domain);
  memory_.refusals[job.name()].tries[ClusterName(kind, 4, 2, /*in_domain=*/true)] = kMostTries;
  memory_.refusals[job.name()].text = "for 8, no recipe fits";
  const Reconciliation refused = Decide(workers, {job});
  EXPECT_TRUE(refused.to_plan.empty());
  EXPECT_NE(refused.waits.at(job.name()).reason.find("no recipe fits"), std::string::npos) << "its slots are left to others";
  // A recipe for a domain for which nothing else was found without trains where the domain is another.
  memory_.planned[job.name()] = {.kind = kind, .in_domain = true};
  memory_.refusals[job.name()].tries = {{ClusterName(kind, 4, 2), kMostTries}};
  (*workers[1].mutable_labels())[kNvlinkDomainLabel] = "d2";
  const Reconciliation leaves = Decide(workers, {job});
  EXPECT_TRUE(leaves.to_plan.empty());
  EXPECT_EQ(leaves.grants.size(), 1u);
}

// One slot is free. Where it is given to another job, stopping the running one would be in vain.
TEST_F(ReconcileTest, RoomIsMadeBesideWhatIsGivenAwayNow) {
  const std::vector<v1::Worker> workers = {MakeWorker("workers/a", "h100-sxm-80", 2)};
  v1::Job running = MakeJob(1, v1::RUNNING, 1), first = MakeJob(2, v1::QUEUED, 1), second = MakeJob(3, v1::QUEUED, 2);
  first.mutable_spec()->mutable_policy()->set_priority(2);
  second.mutable_spec()->mutable_policy()->set_priority(1);
  preempts_ = true;
  leases_ = {{.job = running.name(), .epoch = 1, .worker = "workers/a", .slots = 1}};
  const Reconciliation alone = Decide(workers, {running, second});
  ASSERT_EQ(alone.to_stop.size(), 1u);
  EXPECT_EQ(alone.to_stop[0].job, running.name());
  EXPECT_EQ(alone.to_stop[0].because, second.name() + ", of priority 1, waits for its slots");
  EXPECT_NE(alone.waits.at(second.name()).reason.find("; 1 job of lower priority is asked to save and make room"),
            std::string::npos);
  preempts_ = false;
  EXPECT_TRUE(Decide(workers, {}).to_stop.empty());
  preempts_ = true;
  const Reconciliation beside = Decide(workers, {first});
  EXPECT_EQ(beside.grants.size(), 1u);
  EXPECT_TRUE(beside.to_stop.empty());
}

// As soon as the other machine is checked there is room.
TEST_F(ReconcileTest, NobodyMakesRoomForWhomACheckLeavesIt) {
  std::vector<v1::Worker> workers = {MakeWorker("workers/a", "h100-sxm-80", 2), MakeWorker("workers/b", "h100-sxm-80", 2)};
  v1::Job running = MakeJob(1, v1::RUNNING, 2), urgent = MakeJob(2, v1::QUEUED, 2);
  urgent.mutable_spec()->mutable_policy()->set_priority(1);
  preempts_ = true;
  leases_ = {{.job = running.name(), .epoch = 1, .worker = "workers/a", .slots = 2}};
  workers[1].mutable_health()->set_checking(true);
  const Reconciliation checked = Decide(workers, {running, urgent});
  EXPECT_TRUE(checked.grants.empty());
  EXPECT_TRUE(checked.to_stop.empty());
  EXPECT_NE(checked.waits.at(urgent.name()).reason.find("starts as soon as machines are checked"), std::string::npos)
      << checked.waits.at(urgent.name()).reason;
  workers[1].clear_health();
  const Reconciliation passed = Decide(workers, {running, urgent});
  ASSERT_EQ(passed.grants.size(), 1u);
  EXPECT_EQ(passed.grants[0].workers.at(0), "workers/b");
  workers.pop_back();
  EXPECT_EQ(Decide(workers, {running, urgent}).to_stop.size(), 1u) << "it has not passed";
}

// Two domains of two workers each, one of which is free. Across the domains fewer jobs would have to stop.
TEST_F(ReconcileTest, RoomForARecipeOfOneNvlinkDomainIsMadeInOne) {
  std::vector<v1::Worker> workers;
  for (const char* const name : {"a1", "a2", "b1", "b2"}) {
    v1::Worker& worker = workers.emplace_back(MakeWorker(absl::StrCat("workers/", name), "gb200-nvl72", 4));
    worker.set_gang_address("10.0.0.1");
    (*worker.mutable_labels())[kNvlinkDomainLabel] = std::string(name, 1);
  }
  v1::Job waits = MakeJob(1, v1::QUEUED, 8);
  waits.set_worker_count(2);
  waits.mutable_spec()->mutable_policy()->set_priority(5);
  std::vector<v1::Job> jobs = {waits};
  const auto run = [&](int number, const std::vector<std::string>& names) {
    jobs.push_back(MakeJob(number, v1::RUNNING, 4));
    for (const std::string& name : names)
      leases_.push_back({.job = jobs.back().name(), .epoch = 1, .worker = "workers/" + name, .slots = 4});
  };
  run(2, {"a1"}), run(3, {"a2"}), run(4, {"b1"});
  preempts_ = true;
  PlanningMemory::Planned& planned = memory_.planned[waits.name()];
  planned = {.kind = SlotKind(workers[0]), .in_domain = true};
  const Reconciliation in_domain = Decide(workers, jobs);
  std::set<std::string> stopped;
  for (const auto& one : in_domain.to_stop) stopped.insert(one.job);
  EXPECT_EQ(stopped, (std::set<std::string>{jobs[1].name(), jobs[2].name()}));
  // They stop one after the other: it does not take what is free in both domains meanwhile.
  for (v1::Job* const victim : {&jobs[1], &jobs[2]}) {
    victim->set_epoch(1);
    victim->mutable_stop()->set_save(true);
  }
  const std::vector<v1::Job> running = jobs;
  const std::vector<Lease> leases = leases_;
  const auto end = [&](size_t victim) {
    jobs[victim].clear_stop();
    jobs[victim].set_state(v1::QUEUED);
    std::erase_if(leases_, [&](const Lease& lease) { return lease.job == jobs[victim].name(); });
  };
  end(1);
  const Reconciliation one_has_stopped = Decide(workers, jobs);
  EXPECT_TRUE(one_has_stopped.grants.empty());
  EXPECT_TRUE(one_has_stopped.to_plan.empty());
  EXPECT_TRUE(one_has_stopped.to_stop.empty());
  EXPECT_NE(one_has_stopped.waits.at(waits.name()).reason.find("have left it one NVLink domain"), std::string::npos);
  // Nor does the one that has stopped, where others are free besides, take back what it left.
  std::vector<v1::Worker> more = workers;
  for (const char* const name : {"c1", "d1"}) {
    more.push_back(workers[0]);
    more.back().set_name(absl::StrCat("workers/", name));
    (*more.back().mutable_labels())[kNvlinkDomainLabel] = std::string(name, 1);
  }
  const Reconciliation beside_others = Decide(more, jobs);
  EXPECT_EQ(beside_others.waits.count(waits.name()), 1u);
  for (const scheduler::Grant& grant : beside_others.grants) {
    for (const std::string& worker : grant.workers) EXPECT_EQ(worker.find("workers/a"), std::string::npos) << grant.job;
  }
  end(2);
  workers[1].mutable_health()->set_checking(true);
  const Reconciliation one_is_checked = Decide(workers, jobs);
  EXPECT_TRUE(one_is_checked.grants.empty());
  EXPECT_TRUE(one_is_checked.to_plan.empty());
  EXPECT_NE(one_is_checked.waits.at(waits.name()).reason.find("checks of machines"), std::string::npos);
  workers[1].clear_health();
  const Reconciliation both_have = Decide(workers, jobs);
  ASSERT_GE(both_have.grants.size(), 1u);
  EXPECT_EQ(both_have.grants[0].job, waits.name());
  EXPECT_EQ(std::set<std::string>(both_have.grants[0].workers.begin(), both_have.grants[0].workers.end()),
            (std::set<std::string>{"workers/a1", "workers/a2"}));
  jobs = running, leases_ = leases;
  for (v1::Job& job : jobs) job.clear_stop();

  planned.in_domain = false;
  const Reconciliation anywhere = Decide(workers, jobs);
  ASSERT_EQ(anywhere.to_stop.size(), 1u);
  EXPECT_EQ(anywhere.to_stop[0].job, jobs[1].name()) << "the first by name";
}

// Two running jobs of one slot each make room for one of two slots, and stop one after the other. A third would be over at once.
class PreemptionTest : public ReconcileTest {
 protected:
  PreemptionTest() {
    preempts_ = true;
    urgent_.mutable_spec()->mutable_policy()->set_priority(5);
    small_.mutable_spec()->mutable_recipe()->mutable_training()->set_steps(1);
    small_.mutable_chosen()->set_step_time_seconds(0.001);
    for (v1::Job* const victim : {&first_, &second_}) {
      victim->set_epoch(1);
      leases_.push_back({.job = victim->name(), .epoch = 1, .worker = "workers/a", .slots = 1});
    }
  }

  // They were asked to, and have an hour for it; `ended` have stopped.
  Reconciliation DecideWhileTheyStop(const std::vector<v1::Job*>& ended) {
    for (v1::Job* const victim : {&first_, &second_}) {
      victim->mutable_stop()->set_save(true);
      victim->mutable_stop()->set_request_time_us(kNowUs);
      victim->mutable_stop()->set_deadline_time_us(kNowUs + 3600 * int64_t{1'000'000});
    }
    for (v1::Job* const one : ended) {
      one->clear_stop();
      one->set_state(v1::QUEUED);
      std::erase_if(leases_, [&](const Lease& lease) { return lease.job == one->name(); });
    }
    return Decide(workers_, {first_, second_, urgent_, small_});
  }

  const std::vector<v1::Worker> workers_ = {MakeWorker("workers/a", "h100-sxm-80", 2)};
  v1::Job small_ = MakeJob(1, v1::QUEUED, 1), first_ = MakeJob(2, v1::RUNNING, 1), second_ = MakeJob(3, v1::RUNNING, 1),
          urgent_ = MakeJob(4, v1::QUEUED, 2);
};

TEST_F(PreemptionTest, TheRoomThatJobsMakeOneAfterTheOtherIsForWhomTheyMakeIt) {
  EXPECT_EQ(Decide(workers_, {first_, second_, urgent_, small_}).to_stop.size(), 2u);
  const Reconciliation both = DecideWhileTheyStop({});
  EXPECT_TRUE(both.to_stop.empty());
  const std::string& reason = both.waits.at(urgent_.name()).reason;
  EXPECT_NE(reason.find("position 1, starts as soon as jobs have stopped that were asked to"), std::string::npos) << reason;
  const Reconciliation one = DecideWhileTheyStop({&first_});
  EXPECT_TRUE(one.to_stop.empty());
  EXPECT_TRUE(one.grants.empty()) << one.grants[0].job << " takes the room";
  const Reconciliation none = DecideWhileTheyStop({&first_, &second_});
  EXPECT_TRUE(none.to_stop.empty());
  ASSERT_EQ(none.grants.size(), 1u);
  EXPECT_EQ(none.grants[0].job, urgent_.name());
}

// Who would end before the slots are free is let in where nobody is stopped, and would have to stop as well.
TEST_F(PreemptionTest, NobodyIsLetIntoRoomThatIsMade) {
  leases_.pop_back();  // the second job's
  first_.mutable_spec()->mutable_recipe()->mutable_training()->set_steps(1000);
  first_.mutable_progress()->set_step_seconds(3.6);
  preempts_ = false;
  const Reconciliation let_in = Decide(workers_, {first_, urgent_, small_});
  ASSERT_EQ(let_in.grants.size(), 1u);
  EXPECT_EQ(let_in.grants[0].job, small_.name());
  preempts_ = true;
  const Reconciliation decision = Decide(workers_, {first_, urgent_, small_});
  EXPECT_TRUE(decision.grants.empty());
  ASSERT_EQ(decision.to_stop.size(), 1u);
  EXPECT_EQ(decision.to_stop[0].job, first_.name());
}

// Those that stop go on before others of their priority, and nobody else has to stop.
TEST_F(PreemptionTest, JobsThatMadeRoomForOneThatIsCancelledGoOnFirst) {
  urgent_.set_state(v1::CANCELLED);
  v1::Job background = MakeJob(5, v1::RUNNING, 1);
  background.mutable_spec()->mutable_policy()->set_priority(-1);
  leases_.push_back({.job = background.name(), .epoch = 1, .worker = "workers/b", .slots = 1});
  Decide({}, {background});
  EXPECT_TRUE(DecideWhileTheyStop({}).to_stop.empty());
  const Reconciliation one = DecideWhileTheyStop({&first_});
  EXPECT_TRUE(one.to_stop.empty());
  ASSERT_EQ(one.grants.size(), 1u);
  EXPECT_EQ(one.grants[0].job, first_.name()) << "the other was submitted before, and has not run";
}

// Of two types in one pool: nobody before it could use what the second wants.
TEST_F(PreemptionTest, NobodyWaitsForRoomBehindAJobOfOtherWorkers) {
  const v1::Worker other = MakeWorker("workers/b", "a100-sxm-80", 2);
  v1::Job before = MakeJob(5, v1::QUEUED, 2), running = MakeJob(6, v1::RUNNING, 2), too_large = MakeJob(7, v1::QUEUED, 4);
  before.mutable_spec()->mutable_resources()->set_device_type(other.device().type());
  for (v1::Job* const one : {&before, &running, &too_large}) one->mutable_spec()->mutable_policy()->set_priority(9);
  urgent_.mutable_spec()->mutable_resources()->set_device_type(workers_[0].device().type());
  leases_.push_back({.job = running.name(), .epoch = 1, .worker = other.name(), .slots = 2});
  const Reconciliation decision = Decide({workers_[0], other}, {first_, second_, urgent_, before, running, too_large});
  EXPECT_EQ(decision.waits.at(urgent_.name()).position, 3);
  ASSERT_EQ(decision.to_stop.size(), 2u);
  // Behind one that could use them, and does not stop anybody before it may start, it waits.
  v1::Job same = MakeJob(8, v1::QUEUED, 2);
  same.mutable_spec()->mutable_policy()->set_priority(8);
  same.mutable_spec()->mutable_resources()->set_device_type(workers_[0].device().type());
  same.set_not_before_time_us(kNowUs + 5'000'000);
  const Reconciliation behind = Decide({workers_[0], other}, {same});
  EXPECT_TRUE(behind.to_stop.empty());
  EXPECT_EQ(behind.decide_at_us, kNowUs + 5'000'000);
}

TEST_F(ReconcileTest, AJobThatBacksOffKeepsItsPlaceAndSaysUntilWhen) {
  const v1::Worker worker = MakeWorker("workers/a", "h100-sxm-80", 4);
  v1::Job first = MakeJob(1, v1::RESTARTING, 4), second = MakeJob(2, v1::QUEUED, 4);
  first.set_epoch(1);
  first.set_reason("rank 0 was killed");
  first.set_not_before_time_us(kNowUs + 5'000'000);
  const Reconciliation decision = Decide({worker}, {first, second});
  EXPECT_TRUE(decision.grants.empty());
  EXPECT_EQ(decision.decide_at_us, kNowUs + 5'000'000);
  EXPECT_EQ(decision.waits.at(first.name()).reason, "rank 0 was killed; waits until 22:13:25 UTC");
  EXPECT_EQ(decision.waits.at(second.name()).position, 1) << "behind nobody who waits for slots";
}

TEST_F(ReconcileTest, ASubmittedJobIsPlannedOrSaysWhyNot) {
  const v1::Job small = MakeJob(1, v1::SUBMITTED, 2), large = MakeJob(2, v1::SUBMITTED, 16);
  const Reconciliation decision = Decide({MakeWorker("workers/a", "h100-sxm-80", 8)}, {small, large});
  ASSERT_EQ(decision.to_plan.size(), 1u);
  EXPECT_EQ(decision.to_plan[0].job->name, small.name());
  EXPECT_EQ(decision.to_plan[0].slots, 2);
  EXPECT_EQ(decision.waits.count(large.name()), 1u);
}

// The earlier of two jobs first, of higher priority before both, and one that has run before.
TEST_F(ReconcileTest, JobsArePlannedInTheSchedulersOrder) {
  std::vector<v1::Job> jobs = {MakeJob(1, v1::SUBMITTED, 2), MakeJob(2, v1::SUBMITTED, 2), MakeJob(3, v1::SUBMITTED, 2)};
  jobs[1].mutable_spec()->mutable_policy()->set_priority(5);
  jobs[2].set_epoch(1);
  const Reconciliation decision = Decide({MakeWorker("workers/a", "h100-sxm-80", 8)}, jobs);
  ASSERT_EQ(decision.to_plan.size(), 3u);
  EXPECT_EQ(decision.to_plan[0].job->name, jobs[1].name());
  EXPECT_EQ(decision.to_plan[1].job->name, jobs[2].name());
  EXPECT_EQ(decision.to_plan[2].job->name, jobs[0].name());
}

// Its gang is larger than any worker: planned for fewer slots, but only when that has lasted.
TEST_F(ReconcileTest, AGangThatIsTooLargeIsPlannedForFewerAfterTheGrace) {
  v1::Job job = MakeJob(1, v1::QUEUED, 8);
  job.mutable_spec()->mutable_resources()->set_min_slots(1);
  const std::vector<v1::Worker> workers = {MakeWorker("workers/a", "h100-sxm-80", 4)};
  EXPECT_TRUE(Decide(workers, {job}, absl::Seconds(100)).to_plan.empty());
  EXPECT_TRUE(Decide(workers, {job}, absl::Seconds(129)).to_plan.empty());
  const Reconciliation decision = Decide(workers, {job}, absl::Seconds(130));
  ASSERT_EQ(decision.to_plan.size(), 1u);
  EXPECT_EQ(decision.to_plan[0].slots, 4);
  EXPECT_EQ(decision.to_plan[0].because, "its slots are gone: ");
  EXPECT_TRUE(Decide({MakeWorker("workers/a", "h100-sxm-80", 8)}, {job}, absl::Seconds(140)).to_plan.empty()) << "they are back";
  EXPECT_TRUE(memory_.too_large_since.empty());
}

TEST_F(ReconcileTest, ForgetsJobsThatAreOver) {
  memory_.planned["over"].moves = 1;
  memory_.refusals["over"].text = "x";
  Decide({}, {});
  EXPECT_TRUE(memory_.planned.empty());
  EXPECT_TRUE(memory_.refusals.empty());
}

}  // namespace
}  // namespace legoai::server
