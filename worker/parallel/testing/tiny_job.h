// For tests: a Llama of a few thousand parameters, with the same weights in every layout, its training step by plain autograd as
// the oracle of every parallel one, and one step's training on a mesh of ranks.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "proto/legoai/v1/recipe.pb.h"
#include "worker/comm/testing/process_group_test_util.h"
#include "worker/model/language_model.h"
#include "worker/parallel/loss_parallel.h"
#include "worker/parallel/parallelize.h"
#include "worker/parallel/pipeline/stage_runner.h"

namespace legoai::parallel::testing {

inline constexpr int64_t kSequence = 6;

// 4 blocks, dim 16, 4 heads, 2 heads of keys and values, vocabulary 12.
v1::Model TinyLlama();

// Builds it, with buffers in `dtype`.
std::unique_ptr<model::LanguageModel> Build(const v1::Model& config, at::ScalarType dtype);

// Gives every parameter of the model, as it is cut now, its part of weights that depend on its name alone.
void Fill(model::LanguageModel* model, at::ScalarType dtype);

// The same on every rank: int64 [rows, kSequence] below `limit`.
at::Tensor Tokens(int64_t rows, int64_t limit, uint64_t seed);

struct Reference {
  at::Tensor loss;                              // fp32 []
  std::map<std::string, at::Tensor> gradients;  // by parameter, global
};
// One process, one microbatch after the other.
Reference RunReference(const v1::Model& config, at::ScalarType dtype, const LossFunction& loss, const at::Tensor& tokens,
                       const at::Tensor& targets, int64_t microbatches);

// `whole` as `spec` cuts it.
at::Tensor PartOf(const at::Tensor& whole, const ShardSpec& spec);

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
