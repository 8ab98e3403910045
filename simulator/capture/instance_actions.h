// Expresses a pipeline rank's step of many microbatches as instances of the Trace of a few (core/trace/instances.h): each
// distinct action of each chunk is captured, the rest are instances of it with other storages. Flattened, they equal the Trace of
// all microbatches, index by index; a test compares them.
//
// The first microbatches, two steady ones and the last one are captured. The first and the last are special: parameters are
// gathered, gradient accumulation starts, gradients are reduced. The steady ones represent all in between: two for each way to
// compute backwards, if a rank computes some whole and others split. They must be alike instruction by instruction, up to their
// own storages (or those of the microbatch before each) and integers and offsets that grow with the microbatch's number; any
// other difference is refused, and the caller captures everything. What an action does and frees must not depend on the actions
// around it, which is how StageRunner and comm::Runtime work, so the captured order does not matter where there is a pipeline:
// the order differs between ranks and schedules, actions do not.
//
// Middle ranks of a pipeline whose chunks have equally many layers differ only in layer numbers, neighbours and the order of
// actions, so one capture serves all of them, in a V too, where the layers of the way up are shifted in the other direction. This
// does not hold with dropout, whose site number counts layers.
//
// Torch-free. Thread-safety: pure functions.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "core/schedule/lowering.h"
#include "core/trace/instances.h"
#include "core/trace/trace.h"

namespace legoai::sim {

// How many microbatches of a rank are captured; if there are no more, all are.
int64_t CapturedMicrobatches(const parallel::Schedule& schedule, int64_t rank);

// How each of them computes its backwards: ranks that differ in this cannot share a capture.
std::vector<int64_t> CapturedVariants(const parallel::Schedule& schedule, int64_t rank);

// The actions of a rank to capture.
std::vector<parallel::LoweredAction> ActionsToCapture(const parallel::Schedule& schedule, int64_t rank);

// Whether a rank's capture can serve ranks with other layers.
bool ServesOtherLayers(const graph::Trace& captured);

// `captured`: the Trace of a step of the actions `captured_actions`, made by ActionsToCapture; `all`: what `rank` does in a step
// of `schedule`, lowered. `rank` comes `rank_shift` after the captured one. The instances' groups are those of `captured`, and
// their layers too. FailedPrecondition: how microbatches or ranks differ, or that the gradients of chunks complete in another
// order.
absl::StatusOr<graph::Instances> InstanceActions(const graph::Trace& captured,
                                                 const std::vector<parallel::LoweredAction>& captured_actions,
                                                 const std::vector<parallel::LoweredAction>& all,
                                                 const parallel::Schedule& schedule, int64_t rank, int64_t rank_shift);

}  // namespace legoai::sim
