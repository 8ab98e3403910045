// Each rule of the scheduler on a case small enough to be read, and each sentence that tells why a job waits.
#include "scheduler/scheduler.h"

#include <gtest/gtest.h>

namespace legoai::scheduler {
namespace {

constexpr absl::Duration kMinute = absl::Minutes(1);
const absl::Time kNow = absl::FromUnixSeconds(1767225600);  // 2026-01-01 00:00:00 UTC

WorkerView Worker(const std::string& name, int64_t slots, int64_t free) { return {name, "default", "cpu", slots, free, true}; }

WaitingJob Job(const std::string& name, int64_t slots) {
  WaitingJob job;
  job.name = name;
  job.slots = slots;
  job.pool = "default";
  return job;
}

WaitingJob Job(const std::string& name, int64_t slots, absl::Duration run) {
  WaitingJob job = Job(name, slots);
  job.expected_run = run;
  return job;
}

RunningJob Running(const std::string& worker, int64_t slots, std::optional<absl::Duration> left) {
  RunningJob job;
  job.name = "running on " + worker;
  job.slots[worker] = slots;
  if (left.has_value()) job.expected_end = kNow + *left;
  return job;
}

// "a@w1 b@w2": the grants in their order.
std::string Grants(const Decision& decision) {
  std::string text;
  for (const Grant& grant : decision.grants) text += (text.empty() ? "" : " ") + grant.job + "@" + grant.workers.at(0);
  return text;
}

std::vector<std::string> Texts(const Decision& decision) {
  std::vector<std::string> texts;
  for (const Wait& wait : decision.waits) texts.push_back(wait.job + ": " + wait.text);
  return texts;
}

using Strings = std::vector<std::string>;

TEST(Order, NothingWaitsNothingIsDecided) {
  const Decision decision = Schedule(kNow, {{Worker("w1", 4, 4)}, {}, {}});
  EXPECT_TRUE(decision.grants.empty());
  EXPECT_TRUE(decision.waits.empty());
}

TEST(Order, PriorityThenLostSlotsThenSubmissionThenName) {
  WaitingJob late = Job("late", 1), early = Job("early", 1), restarting = Job("restarting", 1), urgent = Job("urgent", 1);
  WaitingJob twin = Job("earlz", 1);
  late.submitted_us = 9;
  restarting.submitted_us = 8;
  restarting.restarting = true;
  urgent.submitted_us = 7;
  urgent.priority = 1;
  const Decision decision = Schedule(kNow, {{Worker("w1", 8, 8)}, {late, twin, early, restarting, urgent}, {}});
  EXPECT_EQ(Grants(decision), "urgent@w1 restarting@w1 early@w1 earlz@w1 late@w1");
}

TEST(Order, NegativePriorityComesLast) {
  WaitingJob background = Job("background", 1);
  background.priority = -1;
  background.restarting = true;
  const Decision decision = Schedule(kNow, {{Worker("w1", 1, 1)}, {background, Job("z", 1)}, {}});
  EXPECT_EQ(Grants(decision), "z@w1");
}

TEST(Fitting, TheFewestFreeSlotsThenTheName) {
  const std::vector<WorkerView> workers = {Worker("w3", 8, 4), Worker("w2", 8, 3), Worker("w1", 8, 3), Worker("w0", 8, 1)};
  EXPECT_EQ(Grants(Schedule(kNow, {workers, {Job("a", 2)}, {}})), "a@w1");
  EXPECT_EQ(Grants(Schedule(kNow, {workers, {Job("a", 4)}, {}})), "a@w3");
  EXPECT_EQ(Grants(Schedule(kNow, {workers, {Job("a", 1)}, {}})), "a@w0");
}

TEST(Fitting, AGangIsNotSpreadOverWorkers) {
  const Decision decision = Schedule(kNow, {{Worker("w1", 4, 2), Worker("w2", 4, 2)}, {Job("a", 4)}, {}});
  EXPECT_EQ(Grants(decision), "");
  EXPECT_EQ(Texts(decision), Strings{"a: 4 slots are wanted on one worker, at most 2 are free in pool default; position 1"});
}

TEST(Fitting, GrantsTogetherFit) {
  const Decision decision = Schedule(kNow, {{Worker("w1", 4, 4)}, {Job("a", 3), Job("b", 1), Job("c", 1)}, {}});
  EXPECT_EQ(Grants(decision), "a@w1 b@w1");
  ASSERT_EQ(decision.grants.size(), 2u);
  EXPECT_EQ(decision.grants[0].slots, 3);
  EXPECT_EQ(Texts(decision), Strings{"c: 1 slot is wanted, none is free in pool default; position 1"});
}

TEST(Fitting, PoolTypeAndReadinessCount) {
  WorkerView other_pool = Worker("w1", 4, 4), other_type = Worker("w2", 4, 4), draining = Worker("w3", 4, 4);
  other_pool.pool = "big";
  other_type.device_type = "h100-sxm-80";
  draining.accepts = false;
  WaitingJob job = Job("a", 1);
  job.device_type = "cpu";
  EXPECT_EQ(Grants(Schedule(kNow, {{other_pool, other_type, draining}, {job}, {}})), "");
  EXPECT_EQ(Grants(Schedule(kNow, {{other_pool, other_type, draining, Worker("w4", 4, 4)}, {job}, {}})), "a@w4");
  job.device_type = "";
  EXPECT_EQ(Grants(Schedule(kNow, {{other_pool, other_type, draining}, {job}, {}})), "a@w2");
}

TEST(Fitting, TheKindThatItWasPlannedForFirstThenAnyOther) {
  std::vector<WorkerView> workers = {Worker("w1", 8, 8), Worker("w2", 8, 4), Worker("w3", 8, 2)};
  workers[0].kind = workers[1].kind = "fast";
  workers[2].kind = "slow";
  WaitingJob job = Job("a", 2);
  job.kind = "fast";
  EXPECT_EQ(Grants(Schedule(kNow, {workers, {job}, {}})), "a@w2") << "the fewest free slots of its kind";
  workers[0].free = workers[1].free = 1;
  EXPECT_EQ(Grants(Schedule(kNow, {workers, {job}, {}})), "a@w3");
  job.kinds = {"fast"};
  const Decision decision = Schedule(kNow, {workers, {job}, {}});
  EXPECT_EQ(Texts(decision), Strings{"a: 2 slots are wanted on one worker, at most 1 is free in pool default of the kind that it "
                                     "is planned for; position 1"});
  // It keeps nothing that it cannot have.
  EXPECT_EQ(Grants(Schedule(kNow, {workers, {job, Job("b", 2)}, {}})), "b@w3");
}

TEST(Waits, NoSuchWorker) {
  WaitingJob typed = Job("typed", 1);
  typed.device_type = "h100-sxm-80";
  WorkerView draining = Worker("w1", 4, 4);
  draining.accepts = false;
  const Decision decision = Schedule(kNow, {{draining}, {Job("any", 1), typed}, {}});
  ASSERT_EQ(Texts(decision), (Strings{"any: no worker of pool default accepts jobs; position 1",
                                      "typed: no worker of pool default of type h100-sxm-80 accepts jobs; position 2"}));
  for (const Wait& wait : decision.waits) {
    EXPECT_EQ(wait.why, Wait::Why::kNoSuchWorker);
    EXPECT_EQ(wait.largest, 0);
    EXPECT_FALSE(wait.expected_start.has_value());
  }
}

TEST(Waits, TooLargeSaysTheLargestAndHoldsUpNobody) {
  WorkerView draining = Worker("w9", 64, 64);
  draining.accepts = false;
  const std::vector<WorkerView> workers = {Worker("w1", 4, 4), Worker("w2", 8, 0), draining};
  const Decision decision = Schedule(kNow, {workers, {Job("a", 16), Job("b", 4)}, {Running("w2", 8, kMinute)}});
  EXPECT_EQ(Grants(decision), "b@w1");
  ASSERT_EQ(Texts(decision), Strings{"a: 16 slots are wanted on one worker, the largest of pool default has 8; position 1"});
  EXPECT_EQ(decision.waits[0].why, Wait::Why::kTooLarge);
  EXPECT_EQ(decision.waits[0].largest, 8);
}

TEST(Waits, BusyHeadSaysWhenItStarts) {
  const std::vector<WorkerView> workers = {Worker("w1", 4, 1), Worker("w2", 4, 0)};
  const std::vector<RunningJob> running = {Running("w1", 3, 90 * kMinute), Running("w2", 4, 120 * kMinute)};
  const Decision decision = Schedule(kNow, {workers, {Job("a", 4)}, running});
  ASSERT_EQ(Texts(decision), Strings{"a: 4 slots are wanted on one worker, at most 1 is free in pool default; position 1, "
                                     "expected to start at 2026-01-01 01:30:00 UTC"});
  EXPECT_EQ(decision.waits[0].why, Wait::Why::kBusy);
  EXPECT_EQ(decision.waits[0].expected_start, kNow + 90 * kMinute);
  EXPECT_EQ(decision.waits[0].largest, 4);
}

TEST(Waits, ReservedSlotsAreNotOfferedToThoseBehind) {
  const Decision decision =
      Schedule(kNow, {{Worker("w1", 4, 3)}, {Job("a", 4), Job("b", 2), Job("c", 4)}, {Running("w1", 1, kMinute)}});
  EXPECT_EQ(Grants(decision), "");
  EXPECT_EQ(Texts(decision), (Strings{"a: 4 slots are wanted on one worker, at most 3 are free in pool default; position 1, "
                                      "expected to start at 2026-01-01 00:01:00 UTC",
                                      "b: 2 slots are wanted on one worker, 3 are free on w1 and kept for a, which is before it; "
                                      "position 2",
                                      "c: 4 slots are wanted on one worker, at most 3 are free in pool default; position 3"}));
  EXPECT_EQ(decision.waits[0].why, Wait::Why::kBusy);
  EXPECT_EQ(decision.waits[1].why, Wait::Why::kReserved);
  EXPECT_EQ(decision.waits[2].why, Wait::Why::kBusy);
  EXPECT_FALSE(decision.waits[1].expected_start.has_value());
}

TEST(Waits, OfOneSlotInOnePool) {
  const Decision decision = Schedule(kNow, {{Worker("w1", 2, 1)}, {Job("a", 2), Job("b", 1)}, {Running("w1", 1, std::nullopt)}});
  EXPECT_EQ(Texts(decision), (Strings{"a: 2 slots are wanted on one worker, at most 1 is free in pool default; position 1",
                                      "b: 1 slot is wanted, 1 is free on w1 and kept for a, which is before it; position 2"}));
}

TEST(Waits, PositionsAreOfThePool) {
  WaitingJob elsewhere = Job("elsewhere", 1);
  elsewhere.pool = "big";
  const Decision decision = Schedule(kNow, {{}, {Job("a", 1), elsewhere, Job("z", 1)}, {}});
  ASSERT_EQ(decision.waits.size(), 3u);
  EXPECT_EQ(decision.waits[0].position, 1);
  EXPECT_EQ(decision.waits[1].position, 1);
  EXPECT_EQ(decision.waits[2].position, 2);
}

// w1 has 8 slots, 5 are used for 10 minutes: the head wants 6 and will leave 2 over.
Decision Backfill(const std::vector<WaitingJob>& later) {
  std::vector<WaitingJob> waiting = {Job("_head", 6)};
  waiting.insert(waiting.end(), later.begin(), later.end());
  return Schedule(kNow, {{Worker("w1", 8, 3)}, waiting, {Running("w1", 5, 10 * kMinute)}});
}

TEST(Backfilling, AJobThatEndsInTimeMayUseWhatTheHeadWaitsFor) {
  EXPECT_EQ(Grants(Backfill({Job("a", 3, 10 * kMinute)})), "a@w1");
  EXPECT_EQ(Grants(Backfill({Job("a", 3, 10 * kMinute + absl::Microseconds(1))})), "");
  EXPECT_EQ(Grants(Backfill({Job("a", 3)})), "");
}

TEST(Backfilling, AJobOfAnyLengthMayUseWhatTheReservationLeavesOver) {
  EXPECT_EQ(Grants(Backfill({Job("a", 2)})), "a@w1");
  EXPECT_EQ(Grants(Backfill({Job("a", 1), Job("b", 1), Job("c", 1)})), "a@w1 b@w1");
  EXPECT_EQ(Grants(Backfill({Job("a", 2), Job("b", 1, kMinute)})), "a@w1 b@w1");
  EXPECT_EQ(Grants(Backfill({Job("a", 1, kMinute), Job("b", 2)})), "a@w1 b@w1");
}

TEST(Backfilling, OtherWorkersAreFree) {
  const std::vector<RunningJob> running = {Running("w1", 4, kMinute), Running("w2", 2, 2 * kMinute)};
  const std::vector<WorkerView> workers = {Worker("w1", 4, 0), Worker("w2", 4, 2)};
  EXPECT_EQ(Grants(Schedule(kNow, {workers, {Job("_head", 4), Job("a", 2)}, running})), "a@w2");
}

TEST(Backfilling, WhatWasGrantedBeforeTheHeadEndsToo) {
  const std::vector<WaitingJob> waiting = {Job("1", 3, 5 * kMinute), Job("2", 4), Job("3", 1, 5 * kMinute), Job("4", 1, kMinute)};
  const Decision decision = Schedule(kNow, {{Worker("w1", 4, 4)}, waiting, {}});
  EXPECT_EQ(Grants(decision), "1@w1 3@w1");
  EXPECT_EQ(decision.waits[0].expected_start, kNow + 5 * kMinute);
}

TEST(Backfilling, OfNoKnownMomentAllIsKept) {
  const std::vector<RunningJob> running = {Running("w1", 2, std::nullopt), Running("w2", 2, std::nullopt)};
  const std::vector<WorkerView> workers = {Worker("w1", 4, 2), Worker("w2", 4, 2), Worker("w3", 3, 3)};
  const Decision decision = Schedule(kNow, {workers, {Job("_head", 4), Job("a", 2, kMinute), Job("b", 2, kMinute)}, running});
  EXPECT_EQ(Grants(decision), "a@w3");  // too small for the head
  EXPECT_FALSE(decision.waits[0].expected_start.has_value());
  EXPECT_EQ(decision.waits[1].why, Wait::Why::kReserved);
}

TEST(Backfilling, AnOverdueJobMayEndAtAnyMoment) {
  const std::vector<RunningJob> running = {Running("w1", 2, -kMinute)};
  const Decision decision = Schedule(kNow, {{Worker("w1", 4, 2)}, {Job("_head", 4), Job("a", 1, kMinute)}, running});
  EXPECT_EQ(Grants(decision), "");
  EXPECT_FALSE(decision.waits[0].expected_start.has_value());  // it could be now, and nobody knows
}

TEST(Backfilling, OfTwoOverdueWorkersTheOneWithMoreFreeIsKept) {
  const std::vector<RunningJob> running = {Running("w1", 3, -kMinute), Running("w2", 2, -kMinute)};
  const std::vector<WorkerView> workers = {Worker("w1", 4, 1), Worker("w2", 4, 2)};
  EXPECT_EQ(Grants(Schedule(kNow, {workers, {Job("_head", 4), Job("a", 1), Job("b", 1)}, running})), "a@w1");
}

TEST(Backfilling, SlotsThatNobodyAccountsForNeverComeBack) {
  const Decision decision =
      Schedule(kNow, {{Worker("w1", 4, 1)}, {Job("_head", 4), Job("a", 1, kMinute)}, {Running("w1", 2, kMinute)}});
  EXPECT_EQ(Grants(decision), "");
  EXPECT_FALSE(decision.waits[0].expected_start.has_value());
}

TEST(Backfilling, OtherPoolsAndTypesHaveHeadsOfTheirOwn) {
  std::vector<WorkerView> workers = {Worker("w1", 4, 2), Worker("w2", 4, 2), Worker("w3", 4, 2)};
  workers[1].device_type = "h100";
  workers[2].pool = "big";
  std::vector<WaitingJob> waiting = {Job("1", 4), Job("2", 4), Job("3", 4)};
  waiting[0].device_type = "cpu";
  waiting[1].device_type = "h100";
  waiting[2].pool = "big";
  for (int i = 0; i < 3; ++i) {  // one of each kind that would fit, were nothing kept
    WaitingJob small = Job("small" + std::to_string(i), 1);
    small.device_type = waiting[i].device_type;
    small.pool = waiting[i].pool;
    waiting.push_back(small);
  }
  const std::vector<RunningJob> running = {Running("w1", 2, kMinute), Running("w2", 2, kMinute), Running("w3", 2, kMinute)};
  const Decision decision = Schedule(kNow, {workers, waiting, running});
  EXPECT_EQ(Grants(decision), "");
  for (const Wait& wait : decision.waits) EXPECT_EQ(wait.expected_start.has_value(), wait.job.size() == 1) << wait.job;
}

TEST(Backfilling, RunningOnUnknownWorkersCountsForNothing) {
  const Decision decision = Schedule(kNow, {{Worker("w1", 4, 4)}, {Job("a", 4)}, {Running("gone", 4, kMinute)}});
  EXPECT_EQ(Grants(decision), "a@w1");
}

}  // namespace
}  // namespace legoai::scheduler
