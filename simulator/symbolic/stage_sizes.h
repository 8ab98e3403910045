// Sizes of what one pipeline stage holds, in closed form: parameters of this rank and tensors of one microbatch, as the models of
// worker/model and the techniques of worker/parallel make them (the terms are ours).
//
// Thread-safety: pure functions. Elements and tokens where a name does not say bytes.
#pragma once

#include <cstdint>
#include <vector>

#include "core/recipe/resolved_recipe.h"
#include "proto/legoai/v1/model.pb.h"
#include "proto/legoai/v1/recipe.pb.h"

namespace legoai::sim {

// Parameters of one unit that data parallelism gathers: a block, the embedding, the head.
struct UnitElements {
  int64_t gathered = 0;  // after tensor parallelism, before FSDP
  int64_t held = 0;      // this rank's shard
  int64_t matrices = 0;  // of held, those of matrices
  // One Newton-Schulz iteration of the matrices (worker/train/orthogonalize.h), this rank's share.
  double iteration_flops = 0;
  // What it has at least of the largest one, in bytes: the matrix before and after, and twice its product with itself, in bf16.
  int64_t iteration_bytes = 0;
};

struct StageSizes {
  bool has_embedding = false, has_head = false;
  int64_t blocks = 0;
  double recomputed_blocks = 0;         // where a block is computed again in part, that part of its products
  UnitElements embedding, block, head;  // head: the final norm and the output weight (none if it is the embedding's)

  int64_t tokens = 0;        // of a microbatch, those that context parallelism leaves this rank
  int64_t local_tokens = 0;  // of these, where sequence parallelism splits them
  int64_t input_tokens = 0;  // those of either that column-parallel products keep of their input
  int64_t optimizer_state_bytes = 0;  // of this rank's shard
  double orthogonalize_flops = 0;     // of this rank in a step, of Muon
  int64_t orthogonalize_bytes = 0;    // at least, while the first rank orthogonalizes a matrix
  int64_t master_bytes = 4;  // of an element of what the optimizer updates, and of its state
  int64_t param_bytes = 4;   // of an element of values and activations
  int64_t reduce_bytes = 4;
  int64_t vocab = 0;  // columns of logits that this rank's loss works on
  bool vocab_is_split = false;

  int64_t microbatches = 1;
  int64_t chunks = 1;           // of this rank
  int64_t in_flight = 1;        // most microbatches between their forward and their backward, those of each chunk counted
  int64_t heads_in_flight = 1;  // how many of these are the head's
  int64_t later_in_flight = 0;  // most of them in a forward when each chunk has gradients of its weights; 0: there is none
  int64_t weight_lag = 0;       // by so many backwards the gradients of weights come later

  // Bytes of a microbatch that stay until its backward:
  int64_t saved_chunk_bytes = 0;  // of the blocks of the chunk with the least, as checkpointing leaves them
  int64_t saved_head_bytes = 0;   // of the head and the loss

  UnitElements total() const;  // of the stage
};

// Of the stages that are alike the first: the same ends, as many layers and as many of them computed again, and with `unit` > 0
// the same place of their first rank in units of so many neighbours. Ascending. All others have the sizes of one of these but for
// the microbatches in flight, of which the first of a kind has most.
std::vector<int64_t> DistinctStages(const parallel::ResolvedRecipe& resolved, int64_t unit = 0);

// Of the stage that `rank` runs.
StageSizes SizesOfStage(const parallel::ResolvedRecipe& resolved, int64_t rank);

}  // namespace legoai::sim
