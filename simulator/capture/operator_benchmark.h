// The benchmark mode of the cost models (simulator.md, "Compute cost"): every distinct operator of some Traces timed on this
// machine's CPU, while as many cores as a node has ranks do the same.
//
// Each operator is called through the dispatcher below autograd, as in a step, on tensors of the recorded geometry filled with
// ones (integers with zeros); its time is the median over some milliseconds, the mean over the cores. Not part of it: autograd's
// own work, and caches that the step's other operators filled or emptied. Blocking; keeps the cores busy.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "simulator/cost/compute_cost.h"
#include "worker/graph/trace.h"

namespace legoai::sim {

// Errors: NotFound for an operator without a row in operator_table.h; Internal, naming the operator, for one that fails.
absl::StatusOr<BenchmarkTable> BenchmarkOperators(const std::vector<const graph::Trace*>& traces, int64_t busy_cores);

}  // namespace legoai::sim
