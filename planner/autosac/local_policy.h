// Which operators of one block keep their outputs, for a budget of bytes: three algorithms for the same question.
//
// Greedy discards what saves the most memory per second until the rest fits. Knapsack is the dynamic program over memory in steps
// of a thousandth of the block. The linear program is exact. After each, what still has room is kept too, the most time per byte
// first: greedy may have discarded more than was needed, and steps round up. Groups that are always stored are kept whatever the
// budget. Thread-safety: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "planner/autosac/tradeoff.h"

namespace legoai::planner {

enum class LocalSolver { kGreedy, kKnapsack, kIlp };
// "greedy", "knapsack", "ilp"
const std::vector<std::string>& LocalSolverNames();

struct LocalPolicy {
  std::vector<bool> keeps;  // by group
  int64_t kept_bytes = 0;
  double recomputed_seconds = 0;
};

// `budget`: most bytes of kept outputs. Errors: those of Milp.
absl::StatusOr<LocalPolicy> SolveLocal(LocalSolver solver, const std::vector<Group>& groups, int64_t budget);

}  // namespace legoai::planner
