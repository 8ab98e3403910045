// The space of recipes: replicate x shard (ZeRO stage, groups after forward) x context x tensor (inputs gathered again) x
// pipeline (schedule, chunks, microbatch) x local batch x checkpointing x precision. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "proto/legoai/v1/plan.pb.h"
#include "proto/legoai/v1/recipe.pb.h"

namespace legoai::planner {

// The planner's decisions; everything else comes from the request's base recipe.
struct Candidate {
  int64_t replicate = 1, shard = 1, context = 1, tensor = 1, pipeline = 1;
  v1::ContextParallelRotation rotation = v1::ROTATE_BY_ALL_GATHER;  // with context > 1
  int64_t zero_stage = 3;
  int64_t reshard_size = 0;  // ranks that parameters are sharded over after their forward; 0: over all of the shard group
  bool gathers_again = false;  // inputs of column-parallel products
  v1::PipelineSchedule schedule = v1::ONE_F_ONE_B;
  int64_t layers_per_chunk = 0;  // 0: unset
  int64_t local_batch = 1, microbatch = 1;
  v1::ActivationCheckpointMode checkpointing = v1::AC_NONE;
  bool keeps_operators = false;  // selective checkpointing with selective_ac_option = "op"
  v1::DType precision = v1::BFLOAT16;
};

// Every combination of divisors of the world, in a fixed order. Without a pipeline the local batch runs over the divisors of a
// rank's share of the global batch, the rest is accumulated; with one, the share is cut into microbatches, and schedules that
// loop have 2 to 8 chunks a rank, interleaved zero bubble 1 to 8, as many as the model's layers can be cut into. Sequences are
// cut where each rank keeps at least 8,192 tokens of one, and as the base says; their keys and values go round a ring where ranks
// have so many, unless a constraint or the base names a method. Shards are those of ZeRO-3 or 2, or of ZeRO-1
// where that is something else: where microbatches are accumulated without a pipeline. Where a shard group spans nodes,
// parameters may stay sharded over the ranks of a node after their forward. With tensor parallel, inputs may be gathered again in
// backward where no block is checkpointed as a whole. What the base says of either is tried too.
std::vector<Candidate> Enumerate(const v1::PlanRequest& request, int64_t world_size);

// The base recipe with the candidate's decisions set.
v1::Recipe ToRecipe(const Candidate& candidate, const v1::PlanRequest& request);

}  // namespace legoai::planner
