#include "core/flight/flight_waits.h"

#include <gtest/gtest.h>

#include "core/flight/testing/flight_world.h"

namespace legoai::comm {
namespace {

using Ranks = std::set<int64_t>;

// Ranks with records of one number; blockers have queued nothing.
std::vector<FlightWaits::Place> At(int64_t record, const std::vector<int64_t>& ranks) {
  std::vector<FlightWaits::Place> places;
  for (int64_t rank : ranks) places.push_back({rank, record});
  return places;
}
std::vector<FlightWaits::Place> Absent(const std::vector<int64_t>& ranks) { return At(INT64_MAX, ranks); }

TEST(FlightWaits, NobodyWaitsNobodyIsToBlame) {
  EXPECT_EQ(FlightWaits().Find().culprits, Ranks());
  EXPECT_EQ(FlightWaits().Waiting(), Ranks());
}

TEST(FlightWaits, TheEndOfAChainIsToBlame) {
  FlightWaits waits;
  waits.Add(At(1, {0, 1}), Absent({2}));
  waits.Add(At(1, {2, 3}), Absent({4, 5}));
  waits.Add(At(1, {4}), Absent({5}));
  const auto causes = waits.Find();
  EXPECT_EQ(causes.culprits, Ranks({5}));
  EXPECT_EQ(causes.of_wait, (std::vector<Ranks>{{}, {5}, {5}}));
  EXPECT_EQ(waits.Waiting(), Ranks({0, 1, 2, 3, 4}));
}

TEST(FlightWaits, TwoEndsAreBothToBlame) {
  FlightWaits waits;
  waits.Add(At(1, {0}), Absent({1, 2}));
  waits.Add(At(1, {3}), Absent({0}));
  EXPECT_EQ(waits.Find().culprits, Ranks({1, 2}));
}

TEST(FlightWaits, ACircleIsToBlameAndNotWhoHangsOnIt) {
  FlightWaits waits;
  waits.Add(At(1, {0}), Absent({1}));
  waits.Add(At(1, {1}), Absent({2}));
  waits.Add(At(1, {2}), Absent({0}));
  waits.Add(At(1, {7}), Absent({0}));
  waits.Add(At(1, {8}), Absent({7}));
  EXPECT_EQ(waits.Find().culprits, Ranks({0, 1, 2}));
  EXPECT_EQ(waits.Find().circle, Ranks({0, 1, 2}));
}

TEST(FlightWaits, ACircleThatWaitsForAnEndIsNotToBlame) {
  FlightWaits waits;
  waits.Add(At(1, {0}), Absent({1}));
  waits.Add(At(1, {1}), Absent({0, 2}));
  EXPECT_EQ(waits.Find().culprits, Ranks({2}));
  EXPECT_EQ(waits.Find().circle, Ranks());
}

TEST(FlightWaits, WhoIsBlamedIsNotHeldUp) {
  FlightWaits waits;
  waits.Add(At(1, {0}), Absent({1}));
  waits.Add(At(1, {1}), Absent({2}));
  waits.Blame(1);
  EXPECT_EQ(waits.Find().culprits, Ranks({1, 2}));
}

// Rank 1 queued what 0 waits for before that in which it waits for 0.
TEST(FlightWaits, WhatWasQueuedLaterHoldsNobodyUp) {
  FlightWaits waits;
  waits.Add(At(5, {0}), At(5, {1}));
  waits.Add(At(6, {1}), Absent({0}));
  EXPECT_EQ(waits.Find().culprits, Ranks({1}));
}

// All of 0, 1, 2 are inside the first, 0 and 1 have gone on to the second: 2 could have too.
TEST(FlightWaits, WhatOthersPassedHoldsNobodyUp) {
  FlightWaits waits;
  waits.Add(At(5, {0, 1, 2}), {});
  waits.Add(At(6, {0, 1}), Absent({2}));
  EXPECT_EQ(waits.Find().culprits, Ranks({2}));
  EXPECT_EQ(waits.Find().needed, Ranks());
}

TEST(FlightWaits, WhatHasNoKnownCauseHoldsUpAndIsNamed) {
  FlightWaits waits;
  waits.Add(At(5, {1, 2}), {});
  waits.Add(At(6, {0}), Absent({1}));
  EXPECT_EQ(waits.Find().culprits, Ranks());
  EXPECT_EQ(waits.Find().needed, Ranks({0}));
  EXPECT_EQ(waits.Waiting(), Ranks({0}));
}

TEST(RanksText, ShortensRanges) {
  EXPECT_EQ(RanksText({}), "");
  EXPECT_EQ(RanksText({0, 1}), "0,1");
  EXPECT_EQ(RanksText({0, 1, 2, 3, 5}), "0-3,5");
  EXPECT_EQ(RanksText({0, 2, 3, 4}), "0,2-4");
}

constexpr int64_t kSecond = 1'000'000'000, kStart = 1000 * kSecond;

using Dumps = std::vector<v1::FlightDump>;

// As a ring is read: everything began at kStart.
Dumps Read(Dumps dumps) {
  for (auto& dump : dumps) {
    dump.set_reason("read");
    for (auto& entry : *dump.mutable_entries()) {
      if (entry.time_started_ns() != 0) entry.set_time_started_ns(kStart);
    }
  }
  return dumps;
}

// Three ranks in `collectives` all-gathers, of which rank 1 does not come to the last.
Dumps WithoutRank1(int collectives) {
  FlightWorld world = Collectives(3, collectives, "all_gather");
  world.Hang(1, collectives - 1);
  return Read(world.Run());
}

TEST(AnalyzeStandstill, SaysWhoWaitsForWhomAndSinceWhen) {
  const auto analysis = AnalyzeStandstill(WithoutRank1(17), WithoutRank1(17), 3, kStart + 12 * kSecond + kSecond / 2);
  EXPECT_EQ(analysis.text(),
            "ranks 0,2 wait for rank 1 since 12 s: rank 1 has not entered all_gather 17 of dp, in which ranks 0,2 wait");
  EXPECT_EQ(analysis.verdict(), "undecided");
  EXPECT_EQ(analysis.culprits_size(), 0);
  EXPECT_EQ(analysis.matched(), 16);
  ASSERT_EQ(analysis.findings_size(), 1);
  EXPECT_EQ(analysis.findings(0).missing_ranks(0), 1);
  EXPECT_EQ(analysis.findings(0).culprits_size(), 0);
}

TEST(AnalyzeStandstill, WhatGoesOnIsNoWait) {
  // In the second look everybody has come further.
  const auto moved = AnalyzeStandstill(WithoutRank1(16), WithoutRank1(17), 3, kStart + 12 * kSecond);
  EXPECT_EQ(moved.text().find("since"), std::string::npos) << moved.text();
  EXPECT_EQ(moved.culprits_size(), 0);
  // The same all-gather as before, but entered just now.
  const auto fresh = AnalyzeStandstill(WithoutRank1(17), WithoutRank1(17), 3, kStart + kSecond / 2);
  EXPECT_EQ(fresh.text().find("since"), std::string::npos) << fresh.text();
  // One of three has come to it in between: the others need not wait for long.
  Dumps later = WithoutRank1(17);
  *later[1].add_entries() = later[0].entries(16);
  const auto coming = AnalyzeStandstill(WithoutRank1(17), later, 3, kStart + 12 * kSecond);
  EXPECT_EQ(coming.text().find("since"), std::string::npos) << coming.text();
}

// Ranks 0,1 and 2,3 are tensor parallel, 0,2 data parallel: 3 does not come, 2 waits for it, 0 for 2, 1 for 0.
TEST(AnalyzeStandstill, FollowsWaitsToTheirRoot) {
  FlightWorld world(4);
  const int64_t tp0 = world.AddGroup("tp", {0, 1}), tp1 = world.AddGroup("tp", {2, 3}), dp0 = world.AddGroup("dp", {0, 2});
  world.AddCollective(tp1, "all_reduce");
  world.AddCollective(tp1, "all_reduce");
  world.AddCollective(dp0, "reduce_scatter");
  world.AddCollective(tp0, "all_reduce");
  world.Hang(3, 1);
  const Dumps dumps = Read(world.Run());
  const auto analysis = AnalyzeStandstill(dumps, dumps, 4, kStart + 3 * kSecond);
  EXPECT_EQ(analysis.text().rfind("ranks 0-2 wait for rank 3 since 3 s: rank 3 has not entered all_reduce 2 of tp", 0), 0u)
      << analysis.text();
}

// The rest goes on: a pair of ranks that exchange messages meanwhile is left out.
TEST(AnalyzeStandstill, MessagesUnderWayDoNotHideAWait) {
  auto dumps = [](int messages) {
    FlightWorld world(4);
    const int64_t dp = world.AddGroup("dp", {0, 1}), pp = world.AddGroup("pp", {2, 3});
    world.AddCollective(dp, "all_reduce");
    for (int i = 0; i < messages; ++i) world.AddMessage(pp, 2, 3);
    world.Hang(1, 0);
    world.Hang(3, messages);
    return Read(world.Run());
  };
  const auto analysis = AnalyzeStandstill(dumps(4), dumps(5), 4, kStart + 20 * kSecond);
  EXPECT_EQ(analysis.text(),
            "rank 0 waits for rank 1 since 20 s: rank 1 has not entered all_reduce 1 of dp, in which rank 0 waits");
}

// Stopped in the middle: the rings do not say by whom.
TEST(AnalyzeStandstill, AllInsideDidNotGoOn) {
  FlightWorld world = Collectives(2, 1);
  world.Hang(0, 0, {"started"});
  const Dumps dumps = Read(world.Run());
  const auto analysis = AnalyzeStandstill(dumps, dumps, 2, kStart + 5 * kSecond);
  EXPECT_EQ(analysis.text().rfind("ranks 0,1 did not go on since 5 s: ", 0), 0u) << analysis.text();
  EXPECT_EQ(analysis.culprits_size(), 0);
}

TEST(AnalyzeStandstill, WhoEnteredSomethingElseIsToBlameAtOnce) {
  FlightWorld world = Collectives(3, 1);
  world.Alter(2, 0, [](v1::FlightEntry* entry) { entry->set_profiling_name("gloo:all_gather"); });
  const Dumps dumps = Read(world.Run());
  const auto analysis = AnalyzeStandstill(dumps, dumps, 3, kStart + 5 * kSecond);
  EXPECT_EQ(analysis.verdict(), "collective_type_mismatch");
  ASSERT_EQ(analysis.culprits_size(), 1);
  EXPECT_EQ(analysis.culprits(0), 2);
}

}  // namespace
}  // namespace legoai::comm
