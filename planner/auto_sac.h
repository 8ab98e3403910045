// Auto-SAC: which activations a model keeps and which it computes again, for a budget of memory.
//
// A step with all blocks recomputed is captured and simulated. The times and bytes of its operators (autosac/facts.h) give each
// block a curve of memory against time (autosac/tradeoff.h); a linear program gives each block its part of the budget
// (autosac/module_budgets.h); an algorithm chooses the operators of each block (autosac/local_policy.h). The policy is then
// simulated like any recipe, and the program's budget is corrected by its error until the simulated memory fills the real budget.
// What a solver predicts is never the answer.
//
// Not thread-safe. Units: bytes, seconds.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/statusor.h"
#include "planner/autosac/module_budgets.h"
#include "planner/estimates.h"
#include "planner/plan_facts.h"
#include "proto/legoai/v1/estimate.pb.h"
#include "proto/legoai/v1/recipe.pb.h"
#include "proto/legoai/v1/sim.pb.h"

namespace legoai::planner {

struct SacOptions {
  int64_t budget_bytes = 0;  // of a rank: peak_allocated_bytes of every stage
  LocalSolver solver = LocalSolver::kGreedy;
  std::function<bool()> cancel;  // polled; may be empty
};

struct SacResult {
  v1::ActivationCheckpoint section;                // for the recipe
  v1::Estimate none, full, chosen;                 // nothing recomputed, everything, and as `section` says
  std::vector<StageModel> stages;                  // empty where nothing has to be recomputed
  std::vector<std::vector<BlockPolicy>> policies;  // by stage and block
  int64_t simulations = 0;
  double solver_seconds = 0;  // of the last policy: program and algorithm
};

// The largest peak_allocated_bytes of a stage.
int64_t PeakOf(const v1::Estimate& estimate);

// How much longer a step is than without recomputation, and which share of full checkpointing's recomputation is saved.
double RecomputationSeconds(const SacResult& result, const v1::Estimate& estimate);
double SavedShare(const SacResult& result);
PolicyGain GainOf(const SacResult& result);

// The checkpointing of `request.recipe` is replaced. `estimator` is idle; its processes write Traces to a temporary folder on
// this machine. Errors: a ResourceExhausted FieldError of "--budget", naming the least that any policy reaches; those of the
// simulation; Cancelled.
absl::StatusOr<SacResult> AutoSac(const v1::SimRequest& request, const SacOptions& options, Estimator& estimator);

}  // namespace legoai::planner
