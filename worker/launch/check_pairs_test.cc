#include "worker/launch/check_pairs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

namespace legoai::launch {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(CheckRoundsTest, EveryTwoMeetOnceAndNobodyTwiceInARound) {
  for (int64_t ranks = 0; ranks <= 17; ++ranks) {
    std::set<RankPair> met;
    const auto rounds = CheckRounds(ranks, /*neighbours=*/false);
    for (const auto& round : rounds) {
      std::set<int64_t> busy;
      for (const auto& [a, b] : round) {
        EXPECT_TRUE(0 <= a && a < b && b < ranks) << a << " and " << b << " of " << ranks;
        EXPECT_TRUE(busy.insert(a).second && busy.insert(b).second) << "of " << ranks;
        EXPECT_TRUE(met.insert({a, b}).second) << a << " and " << b << " of " << ranks << " met before";
      }
    }
    EXPECT_EQ(static_cast<int64_t>(met.size()), ranks * (ranks - 1) / 2);
    EXPECT_EQ(static_cast<int64_t>(rounds.size()), ranks < 2 ? 0 : ranks - 1 + ranks % 2) << "no more than there must be";
  }
}

TEST(CheckRoundsTest, NeighboursMeetAndNobodyIsLeftOver) {
  for (int64_t ranks = 2; ranks <= 9; ++ranks) {
    std::set<int64_t> met;
    for (const auto& round : CheckRounds(ranks, /*neighbours=*/true)) {
      for (const auto& [a, b] : round) met.insert({a, b});
    }
    EXPECT_EQ(static_cast<int64_t>(met.size()), ranks);
  }
  EXPECT_THAT(CheckRounds(4, true), ElementsAre(ElementsAre(RankPair(0, 1), RankPair(2, 3))));
  EXPECT_THAT(CheckRounds(3, true), ElementsAre(ElementsAre(RankPair(0, 1)), ElementsAre(RankPair(0, 2))));
  EXPECT_THAT(CheckRounds(1, true), IsEmpty());
}

TEST(BlameRanksTest, TheOneThatAllFailuresShare) {
  EXPECT_THAT(BlameRanks({}), IsEmpty());
  EXPECT_THAT(BlameRanks({{0, 1}}), ElementsAre(0, 1)) << "nothing tells them apart";
  EXPECT_THAT(BlameRanks({{0, 2}, {1, 2}, {2, 3}}), ElementsAre(2));
  EXPECT_THAT(BlameRanks({{0, 2}, {1, 2}, {2, 5}, {0, 5}, {3, 5}}), ElementsAre(2, 5));
  EXPECT_THAT(BlameRanks({{0, 2}, {1, 2}, {4, 5}}), ElementsAre(2, 4, 5));
}

}  // namespace
}  // namespace legoai::launch
