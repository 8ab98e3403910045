// A pipeline rank's Trace of many microbatches from the Trace of a few: each distinct action of each chunk is captured, the rest are
// copies of it with other storages. The result is the Trace that capturing all microbatches gives, index by index; a test compares them.
//
// Captured are the first microbatches, two steady ones and the last one. The first and the last are special: parameters are
// gathered, gradients begin to add up, are reduced. The steady ones stand for all in between: they must be alike instruction by
// instruction, up to storages of their own (or of the microbatch before each) and integers and offsets that grow with the
// microbatch's number; what differs in another way is refused, and the caller captures everything. What an action does and frees
// must not depend on the actions around it, which is how StageRunner and comm::Runtime work, so the captured order does not
// matter where there is a pipeline: the order differs between ranks and schedules, actions do not.
//
// Ranks in the middle of a pipeline whose chunks have as many layers differ in the numbers of their layers, their neighbours and the
// order of actions, so one's capture serves for all; not with dropout, whose site is a number that counts layers.
//
// Torch-free. Thread-safety: pure functions.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "core/schedule/lowering.h"
#include "core/trace/trace.h"

namespace legoai::sim {

// How many microbatches are captured of many; if there are no more, all are.
int64_t CapturedMicrobatches(int64_t ranks);

// What to capture of a rank with so many microbatches, where the ranks have so many chunks together.
std::vector<parallel::LoweredAction> ActionsToCapture(int64_t ranks, int64_t chunks, int64_t rank, int64_t microbatches);

// From the rank of the pipeline that was captured to the one that is wanted.
struct StageShift {
  int64_t ranks = 0;   // in the pipeline
  int64_t layers = 0;  // of the numbers of layers in names
};

// Whether a rank's capture serves for ranks with other layers.
bool ServesOtherLayers(const graph::Trace& captured);

// `captured`: the Trace of a step of the actions `captured_actions`, made by ActionsToCapture; `all`: what a step really does.
// The Trace's groups are those of `captured`. FailedPrecondition: what says that microbatches or ranks are not alike.
absl::StatusOr<graph::Trace> InstanceActions(const graph::Trace& captured,
                                             const std::vector<parallel::LoweredAction>& captured_actions,
                                             const std::vector<parallel::LoweredAction>& all, int64_t ranks,
                                             int64_t microbatches, const StageShift& shift = {});

}  // namespace legoai::sim
