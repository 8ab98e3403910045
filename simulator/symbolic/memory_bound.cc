#include "simulator/symbolic/memory_bound.h"

#include <algorithm>

namespace legoai::sim {
namespace {

// Bytes of the loss's tensors besides what the head saved, when they are most. Without loss parallelism, in backward: the
// gradients of the log-probabilities and of the fp32 logits. With it, in forward: the logits.
int64_t LossTemporaries(const StageSizes& s) {
  if (!s.has_head) return 0;
  return s.tokens * s.vocab * (s.vocab_is_split ? s.param_bytes : 8);
}

// Values that are apart from the parameters as they are held, and come for a step: those that are there while the stage's last
// forward ends, and what groups of ranks keep of the others until their backward.
int64_t GatheredValues(const StageSizes& s, const parallel::ResolvedRecipe& resolved) {
  bool apart = resolved.shards_parameters() || s.param_bytes != s.held_bytes;
  if (!apart || resolved.parameters_stay_whole()) return 0;
  if (!resolved.reshard_after_forward()) return s.param_bytes * s.total().gathered;
  const int64_t of_head = s.has_head ? s.param_bytes * s.head.gathered : 0;
  const int64_t groups = resolved.mesh().reshard;
  return groups == 1 ? of_head : of_head + s.blocks * (s.param_bytes * s.block.gathered / groups);
}

// Gradients of microbatches whose backward is done, while others go forward: whole ones in fp32 until the last backward, or
// reduced shards after each.
int64_t KeptGradients(const StageSizes& s, const parallel::ResolvedRecipe& resolved) {
  return resolved.reduce_each_microbatch() ? s.reduce_bytes * s.total().held : 4 * s.total().gathered;
}

int64_t Saved(const StageSizes& s, int64_t in_flight, int64_t heads) {
  return in_flight * s.saved_chunk_bytes + (s.has_head ? heads * s.saved_head_bytes : 0);
}

struct StageBound {
  int64_t stage = 0, bytes = 0;
};

// More microbatches in flight never lower the bound, so the first stage of each kind is enough; of a listed schedule all stages
// are looked at.
StageBound Fullest(const parallel::ResolvedRecipe& resolved) {
  StageBound fullest;
  for (const int64_t stage : DistinctStages(resolved)) {
    const int64_t bytes = BoundMemory(resolved, resolved.mesh().FirstRankOfStage(stage)).peak_requested_bytes;
    if (bytes > fullest.bytes) fullest = {stage, bytes};
  }
  return fullest;
}

}  // namespace

MemoryBound BoundMemory(const parallel::ResolvedRecipe& resolved, int64_t rank) {
  const StageSizes s = SizesOfStage(resolved, rank);
  const UnitElements total = s.total();
  const int64_t rows = resolved.accumulation() * resolved.local_batch();
  MemoryBound bound;
  bound.always_bytes = s.held_bytes * total.held + s.master_bytes + s.optimizer_state_bytes +
                       rows * (16 * resolved.seq_len() / resolved.mesh().cp + 8);
  if (resolved.parameters_stay_whole()) bound.always_bytes += s.param_bytes * total.gathered;
  bound.activation_bytes = Saved(s, s.in_flight, s.heads_in_flight) + LossTemporaries(s);
  const int64_t values = GatheredValues(s, resolved);
  int64_t forward = bound.activation_bytes + values;
  if (s.chunks > 1) {
    // The forward need not be the head's.
    if (s.later_in_flight > 0) forward = std::max(forward, Saved(s, s.later_in_flight, 0) + values + KeptGradients(s, resolved));
  } else if (s.later_in_flight == s.in_flight) {
    forward += KeptGradients(s, resolved);
  } else if (s.microbatches > 1) {
    const int64_t left = std::max<int64_t>(0, s.microbatches - 1 - s.weight_lag);
    forward = std::max(forward, Saved(s, left, left) + values + KeptGradients(s, resolved));
  }
  bound.peak_requested_bytes = bound.always_bytes + std::max(forward, 4 * total.held + s.orthogonalize_bytes);
  return bound;
}

int64_t LargestBound(const parallel::ResolvedRecipe& resolved) { return Fullest(resolved).bytes; }
int64_t FullestStage(const parallel::ResolvedRecipe& resolved) { return Fullest(resolved).stage; }

}  // namespace legoai::sim
