// A decoder-only language model as an ordered list of layers: embedding, blocks, head. A pipeline splits this list; FSDP
// prefetches along it; checkpointing recomputes its blocks.
//
// Forward: tokens [batch, seq] int64 -> logits [batch, seq, vocab] (compute dtype). On a pipeline stage: the layers it kept,
// with [batch, seq, dim] at its open ends.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/legoai/v1/model.pb.h"
#include "worker/model/module.h"

namespace legoai::model {

// What layers read besides their input; the same object for all layers of a model, set before each forward.
struct StepContext {
  at::Tensor rng;      // int64 [2]: seed, step. For counter-based dropout.
  at::Tensor samples;  // int64 [batch]: global sample index of each sequence of the microbatch
  bool training = true;
};

// One entry of the ordered list.
struct Layer {
  enum class Kind { kEmbedding, kBlock, kHead };
  Kind kind = Kind::kBlock;
  int64_t index = -1;  // of a block in the model
  std::unique_ptr<Module> module;
};

class LanguageModel {
 public:
  LanguageModel(v1::Model config, std::vector<Layer> layers, std::shared_ptr<StepContext> context)
      : config_(std::move(config)), layers_(std::move(layers)), context_(std::move(context)) {}

  const v1::Model& config() const { return config_; }
  std::vector<Layer>& layers() { return layers_; }
  StepContext& context() { return *context_; }
  at::Tensor operator()(const at::Tensor& input);
  std::vector<Parameter*> Parameters() const;  // tied weights once

  // Keeps the embedding if `embedding`, blocks [first, last), the head if `head`. Names do not change.
  void KeepLayers(bool embedding, int64_t first, int64_t last, bool head);

 private:
  v1::Model config_;
  std::vector<Layer> layers_;
  std::shared_ptr<StepContext> context_;
};

// Builds the model without memory. Parameter names are Hugging Face's (fused q/k/v of GPT-2 are split, see hf_weights.h).
// Errors: InvalidArgument for an architecture that is not known.
absl::StatusOr<std::unique_ptr<LanguageModel>> BuildModel(const v1::Model& config);

}  // namespace legoai::model
