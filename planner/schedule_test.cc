#include "planner/schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <random>
#include <set>
#include <string>

#include "planner/plan_facts.h"
#include "proto/testing/seeded_random.h"

namespace legoai::planner {
namespace {

// `count` survivors, fastest first; tensor parallel degree and memory as told.
std::vector<Survivor> Survivors(int64_t count, const std::function<int64_t(int64_t)>& degree,
                                const std::function<int64_t(int64_t)>& bytes) {
  std::vector<Survivor> survivors(count);
  for (int64_t i = 0; i < count; ++i) {
    survivors[i].recipe.mutable_parallelism()->set_tensor_parallel_degree(degree(i));
    survivors[i].roofline.step_seconds = 1 + static_cast<double>(i);
    survivors[i].bound_bytes = bytes(i);
  }
  return survivors;
}

// All rounds, where `fits` says which fit; in the order of the estimate.
std::vector<std::vector<size_t>> Rounds(const std::vector<Survivor>& survivors, const std::function<bool(size_t)>& fits,
                                        bool everything = false) {
  Schedule schedule(survivors, everything);
  std::vector<std::vector<size_t>> rounds;
  std::set<size_t> fitting;
  for (;;) {
    rounds.push_back(schedule.NextRound({fitting.begin(), fitting.end()}));
    if (rounds.back().empty()) break;
    for (const size_t i : rounds.back()) {
      if (fits(i)) fitting.insert(i);
    }
  }
  rounds.pop_back();
  int64_t handed_out = 0;
  for (const auto& round : rounds) handed_out += static_cast<int64_t>(round.size());
  EXPECT_EQ(schedule.total(), handed_out);
  return rounds;
}

std::vector<size_t> Flat(const std::vector<std::vector<size_t>>& rounds) {
  std::vector<size_t> all;
  for (const auto& round : rounds) all.insert(all.end(), round.begin(), round.end());
  return all;
}

int64_t One(int64_t) { return 1; }
bool Always(size_t) { return true; }
bool Never(size_t) { return false; }

TEST(Schedule, ByMemoryTakesTheSmallestUpToTheCount) {
  const std::vector<Survivor> survivors = Survivors(300, One, [](int64_t i) { return 1000 - i; });
  Schedule schedule(survivors, /*everything=*/false, v1::MEMORY);
  std::vector<size_t> all;
  for (auto round = schedule.NextRound({}); !round.empty(); round = schedule.NextRound(all)) {
    all.insert(all.end(), round.begin(), round.end());
  }
  ASSERT_EQ(all.size(), static_cast<size_t>(kSimulations));
  for (size_t i = 0; i < all.size(); ++i) EXPECT_EQ(all[i], 299 - i);
}

TEST(Schedule, TakesTheFastestUpToTheCount) {
  const auto rounds = Rounds(Survivors(300, One, One), Always);
  const std::vector<size_t> all = Flat(rounds);
  ASSERT_EQ(all.size(), static_cast<size_t>(kSimulations));
  for (size_t i = 0; i < all.size(); ++i) EXPECT_EQ(all[i], i);
  for (const auto& round : rounds) EXPECT_LE(round.size(), static_cast<size_t>(kRound));
}

// From the second round on, for there is nothing to compare with before.
TEST(Schedule, WhatIsSlowerKeepsItsPlaceAndIsNotSimulated) {
  const std::vector<Survivor> survivors = Survivors(300, One, One);
  Schedule schedule(survivors, /*everything=*/false);
  const auto is_slower = [](size_t i) { return i % 2 == 1; };
  std::vector<size_t> all;
  for (auto round = schedule.NextRound({}, is_slower); !round.empty(); round = schedule.NextRound(all, is_slower)) {
    for (const size_t i : round) EXPECT_TRUE(i < static_cast<size_t>(kRound) || !is_slower(i)) << i;
    all.insert(all.end(), round.begin(), round.end());
  }
  EXPECT_EQ(schedule.slower(), (kSimulations - kRound) / 2);
  EXPECT_EQ(static_cast<int64_t>(all.size()), kRound + (kSimulations - kRound) / 2);
  EXPECT_EQ(schedule.total(), static_cast<int64_t>(all.size()));
}

TEST(Schedule, WhatIsSlowerIsStillAnAlternative) {
  const std::vector<Survivor> survivors = Survivors(300, [](int64_t i) { return i < 40 ? 1 : 2; }, One);
  Schedule schedule(survivors, /*everything=*/false);
  const auto is_slower = [](size_t i) { return i >= static_cast<size_t>(kRound); };
  std::vector<size_t> all = schedule.NextRound({}, is_slower);
  const std::vector<size_t> first = all;
  for (auto round = schedule.NextRound(first, is_slower); !round.empty(); round = schedule.NextRound(first, is_slower))
    all.insert(all.end(), round.begin(), round.end());
  EXPECT_EQ(all.size(), static_cast<size_t>(kRound) + 2) << "one of another degree, and the smallest";
  EXPECT_EQ(all[static_cast<size_t>(kRound)], 40u);
  EXPECT_EQ(schedule.total(), static_cast<int64_t>(all.size()));
}

TEST(Schedule, EverythingIsOneRound) {
  const auto rounds = Rounds(Survivors(300, One, One), Always, /*everything=*/true);
  ASSERT_EQ(rounds.size(), 1u);
  EXPECT_EQ(rounds[0].size(), 300u);
}

TEST(Schedule, FewSurvivorsAreAllTaken) {
  EXPECT_EQ(Flat(Rounds(Survivors(5, One, One), Always)), (std::vector<size_t>{0, 1, 2, 3, 4}));
  EXPECT_TRUE(Rounds({}, Always).empty());
}

// Only number 250 decides otherwise: it opens the second round, in the place of the slowest of the count.
TEST(Schedule, AChoiceThatAllDecideAlikeGetsAnAlternative) {
  const auto rounds = Rounds(Survivors(
                                 300, [](int64_t i) { return i == 250 ? 2 : 1; }, One),
                             Always);
  ASSERT_GE(rounds.size(), 2u);
  EXPECT_EQ(rounds[1][0], 250u);
  EXPECT_EQ(Flat(rounds).size(), static_cast<size_t>(kSimulations));
  // None is looked for where the fastest differ by themselves.
  const auto mixed = Flat(Rounds(Survivors(
                                     300, [](int64_t i) { return 1 + i % 2; }, One),
                                 Always));
  EXPECT_EQ(*std::max_element(mixed.begin(), mixed.end()), static_cast<size_t>(kSimulations - 1));
}

// The alternative should fit: not more memory than the best by the bound; if it does not, the smallest is tried, and no more.
TEST(Schedule, AnAlternativeThatDoesNotFitIsFollowedByTheSmallest) {
  const auto degree = [](int64_t i) { return i >= 200 ? 2 : 1; };
  const auto bytes = [](int64_t i) { return i < 200 ? 50 : i == 200 ? 90 : i == 210 ? 40 : i == 299 ? 10 : 60; };
  const auto rounds = Rounds(Survivors(300, degree, bytes), [&](size_t i) { return i < 200; });
  ASSERT_GE(rounds.size(), 3u);
  EXPECT_EQ(rounds[1][0], 210u);
  EXPECT_EQ(rounds[2][0], 299u);
  for (const size_t i : Flat(rounds)) EXPECT_TRUE(i < 200 || i == 210 || i == 299) << i;
}

// It goes on beyond the count, every other one from the smallest, until one fits; that one is still compared.
TEST(Schedule, GoesOnUntilOneFits) {
  const auto falling = [](int64_t i) { return 1000 - i; };
  const auto all = Flat(Rounds(Survivors(300, One, falling), Never));
  EXPECT_EQ(std::set<size_t>(all.begin(), all.end()).size(), 300u);
  EXPECT_EQ(all[kRound], 299u);
  EXPECT_EQ(all[kRound + 1], static_cast<size_t>(kRound));
  EXPECT_EQ(all[kRound + 2], 298u);

  const auto degree = [](int64_t i) { return i == 150 ? 2 : 1; };
  const auto rounds = Rounds(Survivors(300, degree, falling), [](size_t i) { return i == 250; });
  ASSERT_EQ(rounds.back(), std::vector<size_t>{150});
  const auto& found = rounds[rounds.size() - 2];
  EXPECT_NE(std::find(found.begin(), found.end(), 250u), found.end());
}

// Over random spaces and outcomes: nothing is taken twice, rounds have their size, the count holds once something fits.
TEST(Schedule, HoldsItsCount) {
  SeededRandom random;
  const auto any = [&](int64_t least, int64_t most) { return std::uniform_int_distribution<int64_t>(least, most)(random); };
  for (int round = 0; round < 300; ++round) {
    const int64_t rare = any(1, 100);
    const auto survivors = Survivors(
        any(0, 200), [&](int64_t) { return any(0, rare) == 0 ? 2 : 1; }, [&](int64_t) { return any(1, 50); });
    std::vector<bool> fits(survivors.size());
    const int64_t share = any(0, 30);
    for (size_t i = 0; i < fits.size(); ++i) fits[i] = any(0, 30) < share;
    const auto rounds = Rounds(survivors, [&](size_t i) { return fits[i]; });
    const auto all = Flat(rounds);
    EXPECT_EQ(std::set<size_t>(all.begin(), all.end()).size(), all.size());
    for (const auto& one : rounds) EXPECT_LE(one.size(), static_cast<size_t>(kRound));
    const bool found = std::any_of(all.begin(), all.end(), [&](size_t i) { return fits[i]; });
    EXPECT_EQ(found, std::find(fits.begin(), fits.end(), true) != fits.end());
    const int64_t count = std::min<int64_t>(kSimulations, static_cast<int64_t>(survivors.size()));
    EXPECT_GE(static_cast<int64_t>(all.size()), count);
    const bool early = std::any_of(all.begin(), all.begin() + count, [&](size_t i) { return fits[i]; });
    if (early) {
      EXPECT_LE(all.size(), static_cast<size_t>(count) + kChoiceCount);
    }
  }
}

}  // namespace
}  // namespace legoai::planner
