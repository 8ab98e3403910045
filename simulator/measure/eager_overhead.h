// The overhead of an eager step beyond its operators: autograd's recording and engine, hooks, the model's own code.
//
// On a CPU a step is run eagerly and replayed (step_replay.h); the difference is divided among its instructions by their
// DispatchShare (lower_trace.h), as the simulator applies it. On a GPU a step is bound by the host's dispatch.
#pragma once

#include <c10/core/Device.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "core/recipe/resolved_recipe.h"
#include "core/trace/trace.h"
#include "simulator/engine/lower_trace.h"
#include "simulator/measure/step_replay.h"
#include "worker/comm/streams.h"

namespace legoai::sim {

// Seconds per dispatched instruction, on this core, of a step so small that it is mostly overhead. Errors: Unavailable on a
// machine too busy to measure it. Not thread-safe: the process has one Runtime.
absl::StatusOr<double> MeasureEagerOverhead();

// The same of a recipe's own steps, whose overhead is larger: large tensors drive what dispatch needs out of the caches. `stages`:
// what was captured of them, one rank's each, not in two levels; `replayed`: the sums of what ReplayStep said. At least
// MeasureEagerOverhead(), which a difference of two long times may miss. Needs a step's memory. `done` as for ReplayStep.
absl::StatusOr<double> MeasureEagerOverhead(const parallel::ResolvedRecipe& resolved, const std::vector<StageTrace>& stages,
                                            const std::vector<double>& replayed, Replays replays, std::atomic<int64_t>* done);

// Seconds per dispatched instruction of the whole step, synchronized at its end. On a CPU this includes its operators' work.
absl::StatusOr<double> MeasureEagerDispatch(c10::Device device, std::unique_ptr<comm::Streams> streams);

}  // namespace legoai::sim
