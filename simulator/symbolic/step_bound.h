// A lower bound of the simulated step time, in closed form: what is slower than recipes that are simulated already need not be
// simulated. It counts only what no schedule hides:
// - the work of a rank's compute stream: matrix products and attention of all microbatches, forward and backward, products that
//   are computed again, the update; where the step is eager, which it is on GPUs, also what elementwise operators of the
//   feed-forward, residuals, norms and the loss read and write at least and, in forward, tensor parallelism's collectives, for
//   whose results the next operator waits;
// - before and after that, what pipeline chunks of other ranks compute of one microbatch until this rank has its first input,
//   and once it has handed over its last gradient;
// - beside it, the links: gathers and reductions of a tier share that tier's link, so they take at least their sum.
// Messages, dispatch and what is exposed of sharding are left out. Costs are those of
// compute_cost.h and collective_cost.h, of sums of operators: a cost is no less for parts than for the whole.
//
// It holds as well for the recipe with other choices of fsdp_prefetch_depth, optimizer.master_weights and, on CPUs, of [compile]
// and enable_async_tensor_parallel (planner/last_choices.h), which do not change what is counted.
//
// Thread-safety: a pure function. Units: seconds.
#pragma once

#include "absl/status/statusor.h"
#include "core/recipe/resolved_recipe.h"
#include "proto/legoai/v1/cluster.pb.h"

namespace legoai::sim {

// Errors: those of the cost models (a device without peaks or efficiencies, a world larger than the cluster).
absl::StatusOr<double> BoundStepSeconds(const parallel::ResolvedRecipe& resolved, const v1::Cluster& cluster);

}  // namespace legoai::sim
