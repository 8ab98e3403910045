// What an eager step costs beside its operators: autograd's recording and engine, hooks, the model's own code.
//
// A step so small that it does little else is run eagerly and replayed (step_replay.h); the difference is shared among its
// instructions by their DispatchShare (lower_trace.h), which is how the simulator spends it again. On a GPU the same step takes
// what the host needs to dispatch it: its operators are done long before.
#pragma once

#include <c10/core/Device.h>

#include <memory>

#include "absl/status/statusor.h"
#include "worker/comm/streams.h"

namespace legoai::sim {

// Seconds for each dispatched instruction, on this core. Errors: Unavailable on a machine too busy to measure it. Not
// thread-safe: the process has one Runtime.
absl::StatusOr<double> MeasureEagerOverhead();

// Seconds for each dispatched instruction of the whole step, waited for at its end. On a CPU its operators' work is part of it.
absl::StatusOr<double> MeasureEagerDispatch(c10::Device device, std::unique_ptr<comm::Streams> streams);

}  // namespace legoai::sim
