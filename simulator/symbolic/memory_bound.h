// A lower bound of the peak of requested bytes (`peak_requested_bytes` of lego simulate) of one pipeline stage, in closed form:
// what is above the device's memory need not be captured. It counts only what must live at the same moment:
// - always: parameters of this rank's shard and what the optimizer keeps of them, the batch;
// - at the update: the shard's fp32 gradients;
// - when the last microbatch that is in flight has gone forward: what its blocks and those of the other microbatches saved (all
//   of it, or the inputs of blocks with checkpointing), gathered values that are not resharded or what a smaller group keeps of
//   them, kept gradients of microbatches that are through, and on the last stage the logits and the loss's tensors.
// Workspaces, prefetched and reduce buffers, rounding and the peak within a backward are left out.
//
// Thread-safety: a pure function.
#pragma once

#include <cstdint>

#include "simulator/symbolic/stage_sizes.h"

namespace legoai::sim {

struct MemoryBound {
  int64_t peak_requested_bytes = 0;
  int64_t always_bytes = 0;      // parameters, optimizer state, batch
  int64_t activation_bytes = 0;  // saved by the microbatches in flight, with the loss's tensors
};

MemoryBound BoundMemory(const parallel::ResolvedRecipe& resolved, int64_t rank);

// The largest peak_requested_bytes of all stages: if that does not fit, the recipe does not.
int64_t LargestBound(const parallel::ResolvedRecipe& resolved);
// The first stage that has it.
int64_t FullestStage(const parallel::ResolvedRecipe& resolved);

}  // namespace legoai::sim
