#include "planner/autosac/module_budgets.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <random>

#include "planner/autosac/testing/blocks.h"

namespace legoai::planner {
namespace {

using testing::PrintedBlock;
using testing::RandomBlock;

// A stage of `blocks` in one pass: while block i runs backward, those before it wait.
StageFacts Chain(std::vector<BlockFacts> blocks, int64_t resident) {
  StageFacts facts;
  const size_t n = blocks.size();
  for (size_t i = 0; i < n; ++i) blocks[i].block = static_cast<int64_t>(i);
  facts.blocks = std::move(blocks);
  for (size_t waiting = 0; waiting <= n; ++waiting) {
    MemoryState state{.waiting = std::vector<int64_t>(n, 0), .bytes = resident};
    std::fill_n(state.waiting.begin(), waiting, 1);
    facts.states.push_back(state);
  }
  return facts;
}

double Bounded(const StageModel& stage, const std::vector<BlockBudget>& budgets) {
  double seconds = 0;
  for (size_t i = 0; i < budgets.size(); ++i) {
    const BlockFacts& facts = stage.facts.blocks[i];
    const double share = 1 - static_cast<double>(budgets[i].kept_bytes) / static_cast<double>(facts.TotalBytes());
    if (budgets[i].recomputed) seconds += facts.TotalSeconds() * At(stage.bounds[i], share);
  }
  return seconds;
}

// Every choice of recomputed blocks, with the discarded share of each on a grid.
double BruteForce(const StageModel& stage, int64_t room) {
  constexpr int kGrid = 40;
  double best = 1e30;
  std::function<void(size_t, int64_t, double)> visit = [&](size_t i, int64_t left, double seconds) {
    if (left < 0 || seconds >= best) return;
    if (i == stage.facts.blocks.size()) {
      best = seconds;
      return;
    }
    const BlockFacts& facts = stage.facts.blocks[i];
    visit(i + 1, left - facts.SavedBytes(), seconds);
    double least = 0;
    for (const Group& group : stage.groups[i]) least += group.always_recomputed ? static_cast<double>(group.bytes) : 0;
    for (int step = 0; step <= kGrid; ++step) {
      const double share = static_cast<double>(step) / kGrid, total = static_cast<double>(facts.TotalBytes());
      if (share < least / total) continue;
      visit(i + 1, left - static_cast<int64_t>((1 - share) * total), seconds + facts.TotalSeconds() * At(stage.bounds[i], share));
    }
  };
  visit(0, room, 0);
  return best;
}

TEST(ModuleBudgets, AreNoWorseThanAnySearchOverAGrid) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  for (int round = 0; round < 12; ++round) {
    const auto stage = ModelOf(Chain({RandomBlock(random, 9), RandomBlock(random, 9), RandomBlock(random, 9)}, 1 << 30));
    ASSERT_TRUE(stage.ok()) << stage.status();
    int64_t saved = 0;
    for (const BlockFacts& block : stage->facts.blocks) saved += block.SavedBytes();
    const int64_t room = saved * (round % 4 + 1) / 5;
    const auto budgets = BudgetBlocks(*stage, (int64_t{1} << 30) + room);
    ASSERT_TRUE(budgets.ok()) << budgets.status();
    int64_t kept = 0;
    for (const BlockBudget& budget : *budgets) kept += budget.kept_bytes;
    EXPECT_LE(kept, room + 4);
    EXPECT_LE(Bounded(*stage, *budgets), BruteForce(*stage, room) * (1 + 1e-3) + 1e-9);
  }
}

TEST(ModuleBudgets, DeeperBlocksKeepMore) {
  BlockFacts block = PrintedBlock();
  for (OperatorFacts& op : block.operators) op.saved = op.bytes > 0;
  const auto stage = ModelOf(Chain(std::vector<BlockFacts>(6, block), 0));
  ASSERT_TRUE(stage.ok());
  const auto budgets = BudgetBlocks(*stage, 3 * block.TotalBytes());
  ASSERT_TRUE(budgets.ok()) << budgets.status();
  for (size_t i = 0; i + 1 < budgets->size(); ++i) EXPECT_LE((*budgets)[i].kept_bytes, (*budgets)[i + 1].kept_bytes + 4);
  const auto policies = SolveBlocks(*stage, *budgets, LocalSolver::kGreedy);
  ASSERT_TRUE(policies.ok());
  EXPECT_LE(PeakBytes(*stage, *policies), 3 * block.TotalBytes());
  EXPECT_LT(RecomputedSeconds(*policies), 6 * block.TotalSeconds() / 2);
}

TEST(ModuleBudgets, AllOfTheMemoryNeedsNoRecomputation) {
  BlockFacts block = PrintedBlock();
  for (OperatorFacts& op : block.operators) op.saved = op.bytes > 0;
  const auto stage = ModelOf(Chain(std::vector<BlockFacts>(3, block), 100));
  ASSERT_TRUE(stage.ok());
  const auto budgets = BudgetBlocks(*stage, 101 + 3 * block.SavedBytes());
  ASSERT_TRUE(budgets.ok());
  for (const BlockBudget& budget : *budgets) EXPECT_FALSE(budget.recomputed);
  EXPECT_EQ(BudgetBlocks(*stage, 99).status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace legoai::planner
