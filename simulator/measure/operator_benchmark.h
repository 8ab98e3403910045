// The benchmark mode of the cost models: times every operator of captured steps on this machine's CPU, while as many cores as a
// node has ranks do the same, and the dispatch overhead of a step on CPUs.
//
// Each stage's step is replayed on every core (step_replay.h); an operator's time is the mean over its occurrences and over the
// cores. The expected duration is reported first, and if it is too long there are fewer replays (replay_plan.h). An eager recipe's
// steps then run as they train, as often, for what they take beyond their operators. Forks (core_processes.h). Blocking; keeps the
// cores busy.
#pragma once

#include <functional>
#include <vector>

#include "absl/status/statusor.h"
#include "core/recipe/resolved_recipe.h"
#include "proto/legoai/v1/sim.pb.h"
#include "simulator/cost/compute_cost.h"
#include "simulator/engine/lower_trace.h"

namespace legoai::sim {

struct Benchmark {
  BenchmarkTable operators;
  double dispatch_seconds = 0;  // per instruction, in addition to its operator's time (eager_overhead.h)
};

using BenchmarkProgress = std::function<void(const v1::SimProgress&)>;

// `eager`: the recipe whose steps these are, if it trains eagerly; null: a small model's step says what dispatch costs. `progress`,
// if given, is called before each phase and about twice a second in it. Errors: NotFound for an operator without a
// row in operator_table.h; Internal, naming the operator, for one that fails; FieldError if it would take too long.
absl::StatusOr<Benchmark> BenchmarkOperators(const std::vector<StageTrace>& stages, int64_t busy_cores,
                                             const parallel::ResolvedRecipe* eager = nullptr,
                                             const BenchmarkProgress& progress = {});

}  // namespace legoai::sim
