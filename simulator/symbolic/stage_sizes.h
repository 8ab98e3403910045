// Closed-form sizes of one pipeline stage: parameters of this rank and tensors of one microbatch, for the models of worker/model
// and the techniques of worker/parallel.
//
// Thread-safety: pure functions. Units: elements and tokens unless a name says bytes.
#pragma once

#include <cstdint>
#include <vector>

#include "core/recipe/resolved_recipe.h"
#include "proto/legoai/v1/model.pb.h"
#include "proto/legoai/v1/recipe.pb.h"

namespace legoai::sim {

// Parameters of one unit of data-parallel gathering: a block, the embedding, the head.
struct UnitElements {
  int64_t gathered = 0;  // after tensor parallelism, before FSDP
  int64_t held = 0;      // this rank's shard
  int64_t matrices = 0;  // of `held`: those of matrices
  // One Newton-Schulz iteration of the matrices (worker/train/orthogonalize.h), this rank's share.
  double iteration_flops = 0;
  // A lower bound of its memory for the largest matrix, in bytes: the matrix before and after, and its product with itself twice,
  // in bf16.
  int64_t iteration_bytes = 0;
};

struct StageSizes {
  bool has_embedding = false, has_head = false;
  int64_t blocks = 0;
  double recomputed_blocks = 0;         // a block that is recomputed in part counts with the share of its products
  UnitElements embedding, block, head;  // head: the final norm and the output weight (none if tied)

  int64_t tokens = 0;        // of a microbatch, those that context parallelism leaves this rank
  int64_t local_tokens = 0;  // of these, where sequence parallelism splits them
  int64_t input_tokens = 0;  // those of either that column-parallel products keep of their input
  int64_t master_bytes = 0;           // of this rank's shard: masters in fp32 that are kept beside the parameters
  int64_t optimizer_state_bytes = 0;  // of this rank's shard, besides
  double orthogonalize_flops = 0;     // of this rank in a step, of Muon
  int64_t orthogonalize_bytes = 0;    // at least, while the first rank orthogonalizes a matrix
  int64_t held_bytes = 4;    // of an element of parameters from step to step
  int64_t param_bytes = 4;   // of an element of values and activations
  int64_t reduce_bytes = 4;
  int64_t vocab = 0;  // columns of logits in this rank's loss
  bool vocab_is_split = false;

  int64_t microbatches = 1;
  int64_t chunks = 1;           // of this rank
  int64_t in_flight = 1;        // most microbatches between forward and backward, counted per chunk
  int64_t heads_in_flight = 1;  // of these, the head's
  int64_t later_in_flight = 0;  // most of them during a forward when every chunk has weight gradients; 0: none
  int64_t weight_lag = 0;       // how many backwards the weight gradients lag behind

  // Bytes of a microbatch kept until its backward:
  int64_t saved_chunk_bytes = 0;  // of the blocks of the smallest chunk, after checkpointing
  int64_t saved_head_bytes = 0;   // of the head and the loss

  UnitElements total() const;  // of the stage
};

// The first of each set of equal stages: the same ends, equally many layers and recomputed layers, and with `unit` > 0 the same
// offset of their first rank within units of that many ranks. Ascending. All others have the sizes of one of these except for the
// microbatches in flight, of which the first of a set has the most. Under a listed schedule, whose ranks may keep any number in
// flight, no two stages are equal.
std::vector<int64_t> DistinctStages(const parallel::ResolvedRecipe& resolved, int64_t unit = 0);

// Of the stage that `rank` runs.
StageSizes SizesOfStage(const parallel::ResolvedRecipe& resolved, int64_t rank);

}  // namespace legoai::sim
