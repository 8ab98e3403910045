// For tests: one step's training of a tiny model on a mesh of ranks.
#pragma once

#include <cstdint>

#include "proto/legoai/v1/recipe.pb.h"
#include "worker/comm/testing/process_group_test_util.h"
#include "worker/parallel/parallelize.h"
#include "worker/parallel/pipeline/stage_runner.h"
#include "worker/parallel/testing/tiny_llama.h"

namespace legoai::parallel::testing {

inline constexpr int64_t kGlobalBatch = 12;  // sequences of kSequence

// TinyLlama's sizes with 2 blocks, tied weights and dropout.
v1::Model TinyGpt2();

struct TinyJob {
  mesh::Mesh mesh = {};
  v1::Model model = TinyLlama();
  bool checkpoint = false;
  int64_t accumulation = 1;
  v1::DType param = v1::FLOAT32;
  v1::ReshardPolicy reshard = v1::RESHARD_DEFAULT;
};

// Microbatches of 2 sequences in a pipeline; the loss of whole logits.
v1::Recipe RecipeOf(const TinyJob& job);

// Of `rank`'s chunks.
StageOptions StageOptionsOf(const ResolvedRecipe& resolved, const ParallelizedModel& parallelized, int64_t rank);

}  // namespace legoai::parallel::testing
