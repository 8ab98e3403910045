#include "planner/ranking.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <string>
#include <utility>

#include "proto/testing/seeded_random.h"

namespace legoai::planner {
namespace {

std::vector<Standing> Taken(const std::vector<Standing>& standings, const std::vector<size_t>& order) {
  std::vector<Standing> taken;
  for (const size_t i : order) taken.push_back(standings[i]);
  return taken;
}

TEST(RankOrder, NearTiesGoToTheLargerHeadroom) {
  EXPECT_EQ(RankOrder({{1, 5}, {1.009, 7}, {1.011, 90}}), (std::vector<size_t>{1, 0, 2}));
  EXPECT_EQ(RankOrder({{1, 5}, {1.011, 90}}), (std::vector<size_t>{0, 1}));
  EXPECT_EQ(RankOrder({}), std::vector<size_t>());
}

// 1 and 1.018 are both close to 1.009: the group of the fastest takes it, whatever comes later.
TEST(RankOrder, GroupsBeginWithTheirFastest) {
  EXPECT_EQ(RankOrder({{1.018, 9}, {1.009, 3}, {1, 1}}), (std::vector<size_t>{1, 2, 0}));
}

// {seconds, headroom, peak}
TEST(RankOrder, ByMemoryNearTiesGoToTheFaster) {
  EXPECT_EQ(RankOrder({{1, 0, 2000}, {9, 0, 1000}, {5, 0, 1009}, {3, 0, 1011}}, v1::MEMORY), (std::vector<size_t>{2, 1, 3, 0}));
}

// The order by one objective is that by the other of what has changed places.
TEST(RankOrder, TheTwoObjectivesAreOneRule) {
  SeededRandom random;
  std::vector<Standing> by_time, by_memory;
  for (int i = 0; i < 200; ++i) {
    const int a = std::uniform_int_distribution<>(1000, 1100)(random), b = std::uniform_int_distribution<>(1, 9)(random);
    by_time.push_back({static_cast<double>(a), -b, 0});
    by_memory.push_back({static_cast<double>(b), 0, a});
  }
  EXPECT_EQ(RankOrder(by_time), RankOrder(by_memory, v1::MEMORY));
}

TEST(RankOrder, EqualOnesKeepTheirPlaces) { EXPECT_EQ(RankOrder({{1, 5}, {1, 5}, {1, 5}}), (std::vector<size_t>{0, 1, 2})); }

// Random standings, many of them close or equal, in any arrangement.
TEST(RankOrder, IsAnOrder) {
  SeededRandom random;
  for (int round = 0; round < 500; ++round) {
    std::vector<Standing> standings(std::uniform_int_distribution<size_t>(1, 40)(random));
    for (Standing& one : standings) {
      one.step_seconds = 1 + 0.002 * std::uniform_int_distribution<>(0, 30)(random);
      one.headroom_bytes = std::uniform_int_distribution<>(0, 5)(random);
    }
    const std::vector<size_t> order = RankOrder(standings);
    std::vector<size_t> sorted = order;
    std::sort(sorted.begin(), sorted.end());
    std::vector<size_t> all(standings.size());
    std::iota(all.begin(), all.end(), 0);
    ASSERT_EQ(sorted, all) << "each once";

    const std::vector<Standing> ranked = Taken(standings, order);
    const double fastest = std::min_element(ranked.begin(), ranked.end(), [](auto& a, auto& b) {
                             return a.step_seconds < b.step_seconds;
                           })->step_seconds;
    EXPECT_TRUE(IsNearTie(ranked[0].step_seconds, fastest));
    for (size_t i = 0; i < ranked.size(); ++i) {
      if (IsNearTie(ranked[i].step_seconds, fastest)) {
        EXPECT_LE(ranked[i].headroom_bytes, ranked[0].headroom_bytes);
      }
      for (size_t j = i + 1; j < ranked.size(); ++j) {
        // No later one is faster by more than the noise, and none of an equal time leaves more.
        EXPECT_LE(ranked[i].step_seconds, ranked[j].step_seconds * (1 + kNearTie) + 1e-12);
        if (ranked[i].step_seconds == ranked[j].step_seconds) {
          EXPECT_GE(ranked[i].headroom_bytes, ranked[j].headroom_bytes);
        }
      }
    }
    // However they are arranged.
    std::vector<Standing> shuffled = standings;
    std::shuffle(shuffled.begin(), shuffled.end(), random);
    const std::vector<Standing> again = Taken(shuffled, RankOrder(shuffled));
    for (size_t i = 0; i < ranked.size(); ++i) {
      EXPECT_EQ(std::pair(again[i].step_seconds, again[i].headroom_bytes),
                std::pair(ranked[i].step_seconds, ranked[i].headroom_bytes))
          << i;
    }
    EXPECT_EQ(RankOrder(ranked).front(), 0u);
  }
}

}  // namespace
}  // namespace legoai::planner
