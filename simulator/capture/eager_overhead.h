// What an eager step costs beside its operators: autograd's recording and engine, hooks, the model's own code.
//
// A step so small that it does little else is run eagerly and replayed (step_replay.h); the difference is shared among its
// instructions by their DispatchShare (lower_trace.h), which is how the simulator spends it again.
#pragma once

#include "absl/status/statusor.h"

namespace legoai::sim {

// Seconds for each dispatched instruction, on this core. Errors: Unavailable on a machine too busy to measure it. Not
// thread-safe: the process has one Runtime.
absl::StatusOr<double> MeasureEagerOverhead();

}  // namespace legoai::sim
