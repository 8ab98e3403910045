#include "core/flight/flight_waits.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace legoai::comm
