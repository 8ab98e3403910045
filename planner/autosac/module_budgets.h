// How many bytes each block of a stage may keep, so that the stage's memory stays within a budget and recomputation takes the
// least time: a linear program over blocks, with a choice for each whether it is recomputed at all.
//
// For block i: y (recomputed or not), r (the share of its bytes that is discarded), and
//   kept = ACM (y - r) + IA (1 - y),   time >= T (slope_s r + intercept_s y) for each line s of its upper bound,
// where ACM are the bytes of all its operators, IA those that autograd keeps of a block that is not recomputed, and T the time of
// recomputing all. At each moment of the step, what the waiting blocks keep comes on top of the memory with all recomputed.
//
// Thread-safety: pure functions. Units: bytes, seconds.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "planner/autosac/local_policy.h"
#include "planner/autosac/tradeoff.h"

namespace legoai::planner {

// What the program asks of a stage, made once.
struct StageModel {
  StageFacts facts;
  std::vector<std::vector<Group>> groups;          // by block
  std::vector<std::vector<TradeoffPoint>> curves;  // by block
  std::vector<std::vector<Segment>> bounds;        // by block
};
// Errors: those of Milp.
absl::StatusOr<StageModel> ModelOf(StageFacts facts, const GroupingOptions& options = {});

struct BlockBudget {
  bool recomputed = true;
  int64_t kept_bytes = 0;  // at most
};

// By block. Errors: NotFound if the budget is below what is needed with all recomputed; those of Milp.
absl::StatusOr<std::vector<BlockBudget>> BudgetBlocks(const StageModel& stage, int64_t budget);

// What a block does in the end.
struct BlockPolicy {
  bool recomputed = true;
  LocalPolicy local;  // of a recomputed one, by group
};

// The policies within the budgets; what one block leaves of its budget the next one has.
absl::StatusOr<std::vector<BlockPolicy>> SolveBlocks(const StageModel& stage, const std::vector<BlockBudget>& budgets,
                                                     LocalSolver solver);

// By the model above: the most memory, and the time of recomputing each block once.
int64_t PeakBytes(const StageModel& stage, const std::vector<BlockPolicy>& policies);
double RecomputedSeconds(const std::vector<BlockPolicy>& policies);

}  // namespace legoai::planner
