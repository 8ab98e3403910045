// For tests: a Llama of a few thousand parameters, with the same weights in every layout, and its training step by plain autograd
// as the oracle of every parallel one.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "worker/model/language_model.h"
#include "worker/parallel/loss_function.h"

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

}  // namespace legoai::parallel::testing
