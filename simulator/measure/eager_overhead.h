// The overhead of an eager step beyond its operators: autograd's recording and engine, hooks, the model's own code.
//
// A step small enough to be mostly overhead is run eagerly and replayed (step_replay.h); the difference is divided among its
// instructions by their DispatchShare (lower_trace.h), as the simulator applies it. On a GPU the same step is bound by the host's
// dispatch.
#pragma once

#include <c10/core/Device.h>

#include <memory>

#include "absl/status/statusor.h"
#include "worker/comm/streams.h"

namespace legoai::sim {

// Seconds per dispatched instruction, on this core. Errors: Unavailable on a machine too busy to measure it. Not thread-safe: the
// process has one Runtime.
absl::StatusOr<double> MeasureEagerOverhead();

// Seconds per dispatched instruction of the whole step, synchronized at its end. On a CPU this includes its operators' work.
absl::StatusOr<double> MeasureEagerDispatch(c10::Device device, std::unique_ptr<comm::Streams> streams);

}  // namespace legoai::sim
