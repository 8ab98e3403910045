#include "worker/agent/slots.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <random>
#include <thread>

#include "proto/errors.h"

namespace legoai::agent {
namespace {

using ::testing::ElementsAre;

bool Never() { return false; }

TEST(SlotsTest, TwoAttemptsHaveNothingInCommon) {
  Slots slots(4, {0, 2, 4, 6});
  const auto first = slots.Take(2, Never), second = slots.Take(2, Never);
  EXPECT_THAT(*first, ElementsAre(0, 1));
  EXPECT_THAT(*second, ElementsAre(2, 3));
  EXPECT_THAT(slots.ProcessorsOf(*first), ElementsAre(0, 2));
  EXPECT_THAT(slots.ProcessorsOf(*second), ElementsAre(4, 6));
  EXPECT_EQ(slots.free(), 0);
  slots.Give(*first);
  EXPECT_THAT(*slots.Take(1, Never), ElementsAre(0));
  EXPECT_EQ(slots.free(), 1);
}

TEST(SlotsTest, MoreSlotsThanProcessorsShareThem) {
  Slots slots(3, {1, 3});
  EXPECT_THAT(slots.ProcessorsOf(*slots.Take(3, Never)), ElementsAre(1, 3, 1));
}

TEST(SlotsTest, GpusAreThoseOfTheSlots) {
  Slots slots(3, {0}, {"GPU-a", "GPU-b", "GPU-c"});
  const auto first = slots.Take(1, Never), second = slots.Take(1, Never);
  EXPECT_THAT(slots.GpusOf(*first), ElementsAre("GPU-a"));
  EXPECT_THAT(slots.GpusOf(*second), ElementsAre("GPU-b"));
  slots.Give(*first);
  EXPECT_THAT(slots.GpusOf(*slots.Take(2, Never)), ElementsAre("GPU-a", "GPU-c"));
  EXPECT_THAT(Slots(2, {0}).GpusOf({0, 1}), ElementsAre()) << "slots that are processors";
}

TEST(SlotsTest, FaultyOnesAreGivenToNobodyAndKeptByWhoHasThem) {
  Slots slots(3, {0, 1, 2});
  const auto held = slots.Take(1, Never);
  slots.SetFaults({{0, "slot 0: lost"}, {1, "slot 1: Xid 79"}});
  EXPECT_EQ(slots.free(), 1);
  EXPECT_EQ(slots.FaultsOf(*held), "slot 0: lost");
  EXPECT_EQ(slots.FaultsOf({0, 1, 2}), "slot 0: lost; slot 1: Xid 79");
  EXPECT_EQ(slots.FaultsOf({2}), "");
  const absl::Status refused = slots.Take(2, Never).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kUnavailable) << refused;
  EXPECT_EQ(refused.message(), "of this worker's 3 slots 1 are sound, and 2 are wanted: slot 0: lost");
  EXPECT_THAT(*slots.Take(1, Never), ElementsAre(2));
  slots.Give(*held);
  EXPECT_EQ(slots.free(), 0);
  EXPECT_THAT(slots.TakeFree(), ElementsAre(0, 1)) << "for a check";
  slots.Give({0, 1});
  slots.SetFaults({});
  EXPECT_THAT(*slots.Take(2, Never), ElementsAre(0, 1));
}

TEST(SlotsTest, WhoWaitsHearsThatThereAreTooFew) {
  Slots slots(2, {0, 1});
  const auto all = slots.Take(2, Never);
  absl::StatusOr<std::vector<int64_t>> waited;
  std::thread waiter([&] { waited = slots.Take(2, Never); });
  slots.SetFaults({{1, "slot 1: lost"}});
  waiter.join();
  EXPECT_EQ(waited.status().code(), absl::StatusCode::kUnavailable);
}

TEST(SlotsTest, WhatCanNeverBeIsRefused) {
  Slots slots(2, {0});
  for (const int64_t count : {0, -1, 3}) {
    const auto violation = GetFieldViolation(slots.Take(count, Never).status());
    ASSERT_TRUE(violation) << count;
    EXPECT_EQ(violation->field(), "placement.slots");
  }
}

TEST(SlotsTest, WhoWaitsGetsWhatIsGivenBackOrGivesUp) {
  Slots slots(2, {0, 1});
  const auto all = slots.Take(2, Never);
  std::atomic<bool> given_up = false;
  absl::StatusOr<std::vector<int64_t>> waited, gave_up;
  std::thread impatient([&] { gave_up = slots.Take(2, [&] { return given_up.load(); }); });
  given_up = true;
  slots.RecheckWaiting();
  impatient.join();
  EXPECT_TRUE(absl::IsCancelled(gave_up.status())) << gave_up.status();
  std::thread patient([&] { waited = slots.Take(2, Never); });
  slots.Give(*all);
  patient.join();
  EXPECT_THAT(*waited, ElementsAre(0, 1));
}

TEST(SlotsTest, ManyThreadsNeverHoldTheSameSlot) {
  Slots slots(5, {0, 1, 2, 3, 4});
  std::atomic<int> holders[5] = {};
  std::atomic<bool> shared = false;
  const auto work = [&](unsigned seed) {
    std::mt19937 random(seed);
    for (int round = 0; round < 200; ++round) {
      const auto held = slots.Take(1 + random() % 3, Never);
      for (const int64_t slot : *held) shared = shared || ++holders[slot] > 1;
      for (const int64_t slot : *held) --holders[slot];
      slots.Give(*held);
    }
  };
  std::vector<std::thread> threads;
  for (unsigned seed = 0; seed < 4; ++seed) threads.emplace_back(work, seed);
  for (std::thread& thread : threads) thread.join();
  EXPECT_FALSE(shared);
  EXPECT_EQ(slots.free(), 5);
}

}  // namespace
}  // namespace legoai::agent
