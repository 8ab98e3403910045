#include "planner/autosac/local_policy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "planner/autosac/testing/blocks.h"

namespace legoai::planner {
namespace {

using testing::PrintedBlock;
using testing::RandomBlock;

bool IsFree(const Group& group) { return !group.always_stored && !group.always_recomputed; }

// The least time of recomputation over all sets that the budget allows; -1: not even what must be stored fits.
double BruteForce(const std::vector<Group>& groups, int64_t budget) {
  std::vector<const Group*> open;
  double all = 0;
  for (const Group& group : groups) {
    if (group.always_stored) budget -= group.bytes;
    if (!group.always_stored) all += group.seconds;
    if (IsFree(group)) open.push_back(&group);
  }
  if (budget < 0) return -1;
  double most = 0;
  for (uint32_t set = 0; set < (1u << open.size()); ++set) {
    int64_t bytes = 0;
    double saved = 0;
    for (size_t i = 0; i < open.size(); ++i) {
      if (set >> i & 1) bytes += open[i]->bytes, saved += open[i]->seconds;
    }
    if (bytes <= budget) most = std::max(most, saved);
  }
  return all - most;
}

void ExpectObeysRules(const std::vector<Group>& groups, const LocalPolicy& policy, int64_t budget) {
  int64_t bytes = 0;
  for (size_t i = 0; i < groups.size(); ++i) {
    if (policy.keeps[i]) bytes += groups[i].bytes;
    EXPECT_FALSE(groups[i].always_stored && !policy.keeps[i]);
    EXPECT_FALSE(groups[i].always_recomputed && policy.keeps[i]);
  }
  EXPECT_EQ(bytes, policy.kept_bytes);
  EXPECT_LE(bytes, budget);
}

// The time of what no policy may keep.
double AlwaysSeconds(const std::vector<Group>& groups) {
  double seconds = 0;
  for (const Group& group : groups) seconds += group.always_recomputed ? group.seconds : 0;
  return seconds;
}

// The linear program and the dynamic one are exact; greedy's own part takes at most twice as long as the best.
TEST(LocalPolicy, IsTheBestOfAllSetsOrAtMostTwiceIt) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<double> share(0, 1);
  std::uniform_int_distribution<int> operators(1, 14);
  for (int round = 0; round < 200; ++round) {
    const BlockFacts facts = RandomBlock(random, operators(random));
    const auto groups = GroupsOf(facts, {.store_random = false});
    const auto budget = static_cast<int64_t>(share(random) * static_cast<double>(facts.TotalBytes()));
    const double best = BruteForce(groups, budget), all = facts.TotalSeconds(), always = AlwaysSeconds(groups);
    for (const LocalSolver solver : {LocalSolver::kGreedy, LocalSolver::kKnapsack, LocalSolver::kIlp}) {
      const auto policy = SolveLocal(solver, groups, budget);
      ASSERT_TRUE(policy.ok()) << policy.status();
      ExpectObeysRules(groups, *policy, budget);
      EXPECT_GE(policy->recomputed_seconds, best - 1e-9 * all) << "better than the best";
      const bool exact = solver != LocalSolver::kGreedy;
      const double most = exact ? best : always + 2 * (best - always);
      EXPECT_LE(policy->recomputed_seconds, most + 1e-6 * all) << LocalSolverNames()[static_cast<int>(solver)];
    }
  }
}

// A short operator with almost all that is missing comes first. With the largest one in second place, a hundred times as long as
// the third, which is enough as well.
TEST(LocalPolicy, GreedyLooksBehindTheFirstThatIsLargeEnough) {
  BlockFacts facts;
  facts.operators = {{.name = "aten::mm", .seconds = 1e-6, .bytes = 90},
                     {.name = "aten::mm", .seconds = 1, .bytes = 1'000'000},
                     {.name = "aten::mm", .seconds = 0.01, .bytes = 100}};
  const auto groups = GroupsOf(facts);
  const auto policy = SolveLocal(LocalSolver::kGreedy, groups, facts.TotalBytes() - 100);
  ASSERT_TRUE(policy.ok());
  EXPECT_EQ(policy->keeps, (std::vector<bool>{true, true, false}));
}

// The least time by a table of whole MiB, of which the random blocks are made.
double ByTable(const std::vector<Group>& groups, int64_t budget) {
  constexpr int64_t kMiB = 1 << 20;
  std::vector<double> saved(static_cast<size_t>(budget / kMiB + 1), 0);
  double all = 0;
  for (const Group& group : groups) {
    all += group.seconds;
    const int64_t size = group.bytes / kMiB;
    if (!IsFree(group)) continue;
    for (int64_t room = static_cast<int64_t>(saved.size()) - 1; room >= size; --room)
      saved[room] = std::max(saved[room], saved[room - size] + group.seconds);
  }
  return all - saved.back();
}

// More sets than the dynamic program goes on with: each group may cost a 2,000th of the room.
TEST(LocalPolicy, KnapsackOfManyOperatorsMissesNoMoreThanItsParts) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  for (int round = 0; round < 10; ++round) {
    const BlockFacts facts = RandomBlock(random, 80);
    const auto groups = GroupsOf(facts);
    const int64_t budget = facts.TotalBytes() * (round % 3 + 1) / 4;
    const auto policy = SolveLocal(LocalSolver::kKnapsack, groups, budget);
    ASSERT_TRUE(policy.ok());
    ExpectObeysRules(groups, *policy, budget);
    const int64_t less = budget - static_cast<int64_t>(groups.size()) * (budget / 2000 + 1);
    EXPECT_LE(policy->recomputed_seconds, ByTable(groups, less) + 1e-9);
    EXPECT_GE(policy->recomputed_seconds, ByTable(groups, budget) - 1e-9);
  }
}

TEST(LocalPolicy, GreedyDiscardsTheMostMemoryPerSecondFirst) {
  const auto groups = GroupsOf(PrintedBlock());
  const auto policy = SolveLocal(LocalSolver::kGreedy, groups, 1965031936 - 453509120);
  ASSERT_TRUE(policy.ok());
  // Both dropouts and both norms are exactly that much (sac_gpt2_tradeoff.csv).
  EXPECT_EQ(policy->kept_bytes, 1965031936 - 453509120);
  EXPECT_NEAR(policy->recomputed_seconds * 1e3, 0.4424, 1e-4);
}

TEST(LocalPolicy, WhatMustBeStoredIsStoredWhateverTheBudget) {
  const auto groups = GroupsOf(PrintedBlock(), {.store_random = true});
  for (const LocalSolver solver : {LocalSolver::kGreedy, LocalSolver::kKnapsack, LocalSolver::kIlp}) {
    const auto none = SolveLocal(solver, groups, 0);
    ASSERT_TRUE(none.ok());
    EXPECT_EQ(none->kept_bytes, 102236672 + 2 * 125829120);
    const auto all = SolveLocal(solver, groups, 1965031936);
    ASSERT_TRUE(all.ok());
    EXPECT_NEAR(all->recomputed_seconds, 0, 1e-12);
  }
}

}  // namespace
}  // namespace legoai::planner
