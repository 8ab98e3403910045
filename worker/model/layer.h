// One entry of a model's ordered list of layers, and what layers read besides their input.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "worker/model/module.h"

namespace legoai::model {

// The same object for all layers of a model, set before each forward. Checkpointing that recomputes a layer later must put
// back what was here when the layer first ran (a pipeline has other microbatches in between).
struct StepContext {
  at::Tensor rng;      // int64 [2]: seed, step. For counter-based dropout.
  at::Tensor samples;  // int64 [batch]: global sample index of each sequence of the microbatch
  bool training = true;
  int64_t first_position = 0;  // of the tokens that are given, in their sequence
  // Which of equal consecutive parts of each sample this rank has, of its tokens between the blocks and of the heads in
  // attention.
  int64_t part = 0;
  // What layers add to the loss beside what they pass on, fp32 [] each. Whoever runs the forward takes them and begins the
  // backward at them too; they are no part of the loss that is told.
  std::vector<at::Tensor> auxiliary_losses;

  // Tables made once by LanguageModel::CreateBuffers, in the compute dtype; undefined where a model has none.
  at::Tensor rope_cos, rope_sin;  // [max seq, head_dim], see llama.h
  at::Tensor causal_mask;         // [max seq, max seq]: 0 where a query may look, -inf where not
};

struct Layer {
  enum class Kind { kEmbedding, kBlock, kHead };
  Kind kind = Kind::kBlock;
  int64_t index = -1;  // of a block in the model
  std::unique_ptr<Module> module;
};

}  // namespace legoai::model
