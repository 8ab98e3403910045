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

TEST(LocalPolicy, TheLinearProgramIsTheBestOfAllSets) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<double> share(0, 1);
  for (int round = 0; round < 60; ++round) {
    const BlockFacts facts = RandomBlock(random, 12);
    const auto groups = GroupsOf(facts, {.store_random = false});
    const auto budget = static_cast<int64_t>(share(random) * static_cast<double>(facts.TotalBytes()));
    const double best = BruteForce(groups, budget), all = facts.TotalSeconds();
    const auto ilp = SolveLocal(LocalSolver::kIlp, groups, budget);
    ASSERT_TRUE(ilp.ok()) << ilp.status();
    ExpectObeysRules(groups, *ilp, budget);
    EXPECT_NEAR(ilp->recomputed_seconds, best, 1e-6 * all);
    for (const LocalSolver solver : {LocalSolver::kGreedy, LocalSolver::kKnapsack}) {
      const auto policy = SolveLocal(solver, groups, budget);
      ASSERT_TRUE(policy.ok());
      ExpectObeysRules(groups, *policy, budget);
      EXPECT_GE(policy->recomputed_seconds, best - 1e-6 * all) << "better than the best";
    }
  }
}

// Steps of the dynamic program round up by less than one step for each group: with that much more room it is as good as the best.
TEST(LocalPolicy, KnapsackMissesNoMoreThanItsSteps) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  for (int round = 0; round < 40; ++round) {
    const BlockFacts facts = RandomBlock(random, 10);
    const auto groups = GroupsOf(facts);
    const int64_t step = std::max<int64_t>(1, facts.TotalBytes() / 1000), budget = facts.TotalBytes() / 2;
    const auto policy = SolveLocal(LocalSolver::kKnapsack, groups, budget);
    ASSERT_TRUE(policy.ok());
    const int64_t less = budget - static_cast<int64_t>(groups.size() + 1) * step;
    EXPECT_LE(policy->recomputed_seconds, BruteForce(groups, less) + 1e-9);
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
