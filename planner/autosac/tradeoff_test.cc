#include "planner/autosac/tradeoff.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string>

#include "planner/autosac/testing/blocks.h"

namespace legoai::planner {
namespace {

using testing::PrintedBlock;
using testing::RandomBlock;
using testing::Rows;

// Three digits, as the figure prints it.
std::string Rounded(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2e", value);
  return text;
}

// Operators whose printed times make them equal to three digits may stand in either order; sums are compared where both orders
// have discarded the same set.
TEST(Tradeoff, IsThatOfThePrintedBlockOfGpt2) {
  const BlockFacts facts = PrintedBlock();
  ASSERT_EQ(facts.operators.size(), 33u);
  EXPECT_EQ(facts.TotalBytes(), 1965031936);
  EXPECT_NEAR(facts.TotalSeconds() * 1e3, 18.79831815077489, 1e-3);
  const auto groups = GroupsOf(facts);
  const auto curve = TradeoffOf(groups);
  const auto printed = Rows("sac_gpt2_tradeoff.csv");
  ASSERT_EQ(curve.size(), printed.size());
  std::set<int> ours, theirs;
  int compared = 0;
  for (size_t i = 0; i < curve.size(); ++i) {
    const auto& row = printed[i];
    const Group& group = groups[curve[i].group];
    ours.insert(group.operators[0]);
    theirs.insert(std::stoi(row[1]));
    EXPECT_EQ(group.always_recomputed, row[9] == "true") << i;
    EXPECT_EQ(group.always_stored, row[8] == "true") << i;
    const double printed_ratio = row[7] == "nan" ? 0 : std::stod(row[7]);
    EXPECT_EQ(Rounded(group.MemoryPerSecond() / 1e3), Rounded(printed_ratio)) << i;
    if (ours != theirs) continue;
    ++compared;
    // One row contradicts the table that it sums up, as its note says: 80,000 bytes.
    const bool contradicts = row.size() > 10 && !row[10].empty();
    EXPECT_NEAR(static_cast<double>(curve[i].discarded_bytes), std::stod(row[4]), contradicts ? 80000 : 0) << i;
    EXPECT_NEAR(curve[i].seconds * 1e3, std::stod(row[6]), 1e-3) << i;
    EXPECT_NEAR(static_cast<double>(curve[i].discarded_bytes) / 1965031936, std::stod(row[3]), contradicts ? 8e-3 : 6e-5) << i;
    EXPECT_NEAR(curve[i].seconds / facts.TotalSeconds(), std::stod(row[5]), 6e-5) << i;
  }
  EXPECT_GE(compared, 31) << "of 33";
}

TEST(Tradeoff, RandomOperatorsCanBeStored) {
  const auto groups = GroupsOf(PrintedBlock(), {.store_random = true});
  std::set<int> stored;
  for (const Group& group : groups) {
    if (group.always_stored) stored.insert(group.operators[0]);
  }
  EXPECT_EQ(stored, (std::set<int>{12, 19, 31}));
  EXPECT_EQ(TradeoffOf(groups).size(), 30u) << "without them";
}

TEST(Tradeoff, WhatWritesInPlaceGoesWithWhatItWrites) {
  BlockFacts facts;
  facts.operators = {{.name = "aten::mm", .seconds = 3, .bytes = 100}, {.name = "aten::silu_", .seconds = 1, .leader = 0}};
  auto groups = GroupsOf(facts);
  ASSERT_EQ(groups.size(), 1u);
  EXPECT_EQ(groups[0].operators, (std::vector<int>{0, 1}));
  EXPECT_EQ(groups[0].bytes, 100);
  EXPECT_EQ(groups[0].seconds, 4);
  EXPECT_FALSE(groups[0].always_recomputed);
  facts.operators[1].keepable = false;
  EXPECT_TRUE(GroupsOf(facts)[0].always_recomputed) << "a policy that cannot keep one of them keeps none";
}

// Discarding more than one point takes the time of the next; the bound is convex.
void ExpectSafe(const BlockFacts& facts) {
  const auto curve = TradeoffOf(GroupsOf(facts));
  const double bytes = static_cast<double>(facts.TotalBytes()), seconds = facts.TotalSeconds();
  const auto bound = UpperBound(curve, facts.TotalBytes(), seconds);
  ASSERT_TRUE(bound.ok()) << bound.status();
  ASSERT_FALSE(bound->empty());
  for (size_t i = 0; i + 1 < curve.size(); ++i) {
    const double share = static_cast<double>(curve[i].discarded_bytes) / bytes;
    EXPECT_GE(At(*bound, share), curve[i + 1].seconds / seconds - 1e-6) << i;
  }
  for (size_t i = 0; i + 1 < bound->size(); ++i) EXPECT_LE((*bound)[i].slope, (*bound)[i + 1].slope + 1e-6);
}

TEST(UpperBound, IsAboveTheCurveMovedUp) {
  ExpectSafe(PrintedBlock());
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  for (int i = 0; i < 20; ++i) ExpectSafe(RandomBlock(random, 12));
}

TEST(UpperBound, OfTwoEqualOperatorsIsTheLineOneStepAhead) {
  BlockFacts facts;
  facts.operators = {{.name = "aten::mm", .seconds = 1, .bytes = 100}, {.name = "aten::mm", .seconds = 1, .bytes = 100},
                     {.name = "aten::mm", .seconds = 1, .bytes = 100}, {.name = "aten::mm", .seconds = 1, .bytes = 100}};
  const auto bound = UpperBound(TradeoffOf(GroupsOf(facts)), 400, 4);
  ASSERT_TRUE(bound.ok());
  ASSERT_EQ(bound->size(), 1u) << "points on a line need one";
  EXPECT_NEAR(bound->at(0).slope, 1, 1e-9);
  EXPECT_NEAR(bound->at(0).intercept, 0.25, 1e-9);
}

}  // namespace
}  // namespace legoai::planner
