// Which operators of one block keep their outputs, for a budget of bytes: three algorithms for the same question.
//
// Greedy discards what saves the most memory per second until the rest fits, and tries what is large enough behind it in place of
// the last: at most twice the least time (Csirik, Frenk, Labbé and Zhang 1991). Knapsack is a dynamic program over the sets of
// groups that no other set dominates (Nemhauser and Ullmann 1969): exact for up to 2,000 such sets, and for more with that many
// parts of the room. The linear program is exact. After each, what still has room is kept too, the most time per byte first.
// Groups that are always stored are kept whatever the budget. Thread-safety: pure functions.
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
