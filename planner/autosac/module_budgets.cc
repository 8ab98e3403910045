#include "planner/autosac/module_budgets.h"

#include <algorithm>
#include <utility>

#include "planner/autosac/milp.h"
#include "proto/status.h"

namespace legoai::planner {
namespace {

constexpr double kMiB = 1 << 20;  // unit of the program, so that its numbers are of one size
constexpr double kMsPerSecond = 1e3;

bool AreAlike(const BlockFacts& a, const BlockFacts& b) {
  return std::equal(a.operators.begin(), a.operators.end(), b.operators.begin(), b.operators.end(),
                    [](const OperatorFacts& x, const OperatorFacts& y) {
                      return x.name == y.name && x.module == y.module && x.seconds == y.seconds && x.bytes == y.bytes &&
                             x.saved == y.saved && x.recomputed == y.recomputed && x.leader == y.leader;
                    });
}

// The shares of a block's bytes that are discarded at least and at most where it is recomputed.
std::pair<double, double> Shares(const std::vector<Group>& groups, double total) {
  double always_recomputed = 0, always_stored = 0;
  for (const Group& group : groups) {
    if (group.always_recomputed) always_recomputed += static_cast<double>(group.bytes);
    if (group.always_stored) always_stored += static_cast<double>(group.bytes);
  }
  return total > 0 ? std::pair(always_recomputed / total, 1 - always_stored / total) : std::pair(0.0, 1.0);
}

class BudgetProgram {
 public:
  explicit BudgetProgram(const StageModel& stage) : stage_(stage) {
    for (size_t i = 0; i < stage.facts.blocks.size(); ++i) AddBlock(i);
    for (size_t i = 0; i + 1 < blocks_.size(); ++i) AddOrder(i);
  }

  absl::StatusOr<std::vector<BlockBudget>> Solve(int64_t budget) {
    for (const MemoryState& state : stage_.facts.states) {
      Milp::Terms kept;
      for (size_t i = 0; i < blocks_.size(); ++i) {
        if (state.waiting[i] > 0) kept.emplace_back(blocks_[i].kept, static_cast<double>(state.waiting[i]));
      }
      const double room = static_cast<double>(budget - state.bytes) / kMiB;
      if (room < 0) return absl::NotFoundError("the budget is below what is needed with all blocks recomputed");
      if (!kept.empty()) program_.AddAtMost(std::move(kept), room);
    }
    ASSIGN_OR_RETURN(const auto values, program_.Minimize({.seconds = 120, .nodes = 20'000, .gap = 1e-4}));
    std::vector<BlockBudget> budgets;
    for (const Block& block : blocks_)
      budgets.push_back({values[block.recomputed] > 0.5, static_cast<int64_t>(values[block.kept] * kMiB)});
    return budgets;
  }

 private:
  struct Block {
    int recomputed, discarded, kept;  // y, r, kept
  };

  void AddBlock(size_t i) {
    const BlockFacts& facts = stage_.facts.blocks[i];
    const double total = static_cast<double>(facts.TotalBytes()) / kMiB, saved = static_cast<double>(facts.SavedBytes()) / kMiB;
    const auto [least, most] = Shares(stage_.groups[i], total * kMiB);
    const Block block = {program_.AddVariable(0, 1, 0, /*integer=*/true), program_.AddVariable(0, 1, 0),
                         program_.AddVariable(0, Milp::kInfinite, 0)};
    const int time = program_.AddVariable(0, Milp::kInfinite, 1);
    program_.AddAtLeast({{block.discarded, 1}, {block.recomputed, -least}}, 0);
    program_.AddAtMost({{block.discarded, 1}, {block.recomputed, -most}}, 0);
    program_.AddEqual({{block.kept, 1}, {block.discarded, total}, {block.recomputed, saved - total}}, saved);
    const double whole = facts.TotalSeconds() * kMsPerSecond;
    for (const Segment& line : stage_.bounds[i]) {
      program_.AddAtLeast({{time, 1}, {block.discarded, -whole * line.slope}, {block.recomputed, -whole * line.intercept}}, 0);
    }
    blocks_.push_back(block);
  }

  // Of alike blocks the later one keeps no less, which costs nothing: it waits no longer than the one before. So permutations of
  // one solution are not searched.
  void AddOrder(size_t i) {
    const auto& blocks = stage_.facts.blocks;
    if (blocks[i].block + 1 != blocks[i + 1].block || !AreAlike(blocks[i], blocks[i + 1])) return;
    const bool waits = std::all_of(stage_.facts.states.begin(), stage_.facts.states.end(),
                                   [i](const MemoryState& state) { return state.waiting[i] >= state.waiting[i + 1]; });
    if (waits) program_.AddAtLeast({{blocks_[i + 1].kept, 1}, {blocks_[i].kept, -1}}, 0);
  }

  const StageModel& stage_;
  Milp program_;
  std::vector<Block> blocks_;
};

}  // namespace

absl::StatusOr<StageModel> ModelOf(StageFacts facts, const GroupingOptions& options) {
  StageModel stage;
  stage.facts = std::move(facts);
  const auto& blocks = stage.facts.blocks;
  for (size_t i = 0; i < blocks.size(); ++i) {
    const bool known = i > 0 && AreAlike(blocks[i - 1], blocks[i]);
    stage.groups.push_back(known ? stage.groups.back() : GroupsOf(blocks[i], options));
    stage.curves.push_back(known ? stage.curves.back() : TradeoffOf(stage.groups[i]));
    if (known) {
      stage.bounds.push_back(std::vector<Segment>(stage.bounds.back()));
      continue;
    }
    ASSIGN_OR_RETURN(auto bound, UpperBound(stage.curves[i], blocks[i].TotalBytes(), blocks[i].TotalSeconds()));
    stage.bounds.push_back(std::move(bound));
  }
  return stage;
}

absl::StatusOr<std::vector<BlockBudget>> BudgetBlocks(const StageModel& stage, int64_t budget) {
  return BudgetProgram(stage).Solve(budget);
}

absl::StatusOr<std::vector<BlockPolicy>> SolveBlocks(const StageModel& stage, const std::vector<BlockBudget>& budgets,
                                                     LocalSolver solver) {
  std::vector<BlockPolicy> policies;
  int64_t left = 0;
  for (size_t i = 0; i < budgets.size(); ++i) {
    BlockPolicy policy{.recomputed = budgets[i].recomputed, .local = {}};
    if (policy.recomputed) {
      const int64_t budget = budgets[i].kept_bytes + left;
      ASSIGN_OR_RETURN(policy.local, SolveLocal(solver, stage.groups[i], budget));
      left = std::max<int64_t>(0, budget - policy.local.kept_bytes);
    }
    policies.push_back(std::move(policy));
  }
  return policies;
}

int64_t PeakBytes(const StageModel& stage, const std::vector<BlockPolicy>& policies) {
  int64_t peak = 0;
  for (const MemoryState& state : stage.facts.states) {
    int64_t bytes = state.bytes;
    for (size_t i = 0; i < policies.size(); ++i) {
      const int64_t kept = policies[i].recomputed ? policies[i].local.kept_bytes : stage.facts.blocks[i].SavedBytes();
      bytes += state.waiting[i] * kept;
    }
    peak = std::max(peak, bytes);
  }
  return peak;
}

double RecomputedSeconds(const std::vector<BlockPolicy>& policies) {
  double seconds = 0;
  for (const BlockPolicy& policy : policies) seconds += policy.recomputed ? policy.local.recomputed_seconds : 0;
  return seconds;
}

}  // namespace legoai::planner
