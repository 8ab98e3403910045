// A pipeline rank's step of many microbatches as instances of the Trace of a few (core/trace/instances.h): each distinct action
// of each chunk is captured, the rest are instances of it with other storages. Flattened, they are the Trace that capturing all
// microbatches gives, index by index; a test compares them.
//
// Captured are the first microbatches, two steady ones and the last one. The first and the last are special: parameters are
// gathered, gradients begin to add up, are reduced. The steady ones stand for all in between, two for each way to compute their
// backwards, where a rank computes some whole and others in parts: they must be alike instruction by instruction, up to storages
// of their own (or of the microbatch before each) and integers and offsets that grow with the microbatch's number; what differs
// in another way is refused, and the caller captures everything. What an action does and frees must not depend on the actions
// around it, which is how StageRunner and comm::Runtime work, so the captured order does not matter where there is a pipeline:
// the order differs between ranks and schedules, actions do not.
//
// Ranks in the middle of a pipeline whose chunks have as many layers differ in the numbers of their layers, their neighbours and
// the order of actions, so one's capture serves for all; not with dropout, whose site is a number that counts layers, and not
// where chunks lie in a V, since layers and neighbours of the way up are shifted the other way.
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

// How many microbatches are captured of many of a rank; if there are no more, all are.
int64_t CapturedMicrobatches(const parallel::Schedule& schedule, int64_t rank);

// How each of them computes its backwards: ranks of which that differs cannot share a capture.
std::vector<int64_t> CapturedVariants(const parallel::Schedule& schedule, int64_t rank);

// What to capture of a rank.
std::vector<parallel::LoweredAction> ActionsToCapture(const parallel::Schedule& schedule, int64_t rank);

// Whether a rank's capture serves for ranks with other layers.
bool ServesOtherLayers(const graph::Trace& captured);

// `captured`: the Trace of a step of the actions `captured_actions`, made by ActionsToCapture; `all`: what `rank` does in a step
// of `schedule`, lowered. `rank` comes `rank_shift` after the captured one. The instances' groups are those of `captured`, and
// their layers too.
// FailedPrecondition: what says that microbatches or ranks are not alike, or that the gradients of chunks end in another order.
absl::StatusOr<graph::Instances> InstanceActions(const graph::Trace& captured,
                                                 const std::vector<parallel::LoweredAction>& captured_actions,
                                                 const std::vector<parallel::LoweredAction>& all,
                                                 const parallel::Schedule& schedule, int64_t rank, int64_t rank_shift);

}  // namespace legoai::sim
