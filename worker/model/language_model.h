// A decoder-only language model as an ordered list of layers: embedding, blocks, head. A pipeline splits this list; FSDP
// prefetches along it; checkpointing recomputes its blocks.
//
// Forward: tokens [batch, seq] int64 -> logits [batch, seq, vocab] (compute dtype). On a pipeline rank: its chunks, runs of
// layers with [batch, seq, dim] at their open ends.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/legoai/v1/model.pb.h"
#include "worker/model/layers.h"
#include "worker/model/module.h"

namespace legoai::model {

// What a chunk has of the model: blocks [first, last), and the ends.
struct ChunkLayers {
  bool embedding = true;
  int64_t first = 0, last = 0;
  bool head = true;
};

class LanguageModel {
 public:
  LanguageModel(v1::Model config, std::vector<Layer> layers, std::shared_ptr<StepContext> context)
      : config_(std::move(config)), layers_(std::move(layers)), context_(std::move(context)), chunks_{{0, layers_.size()}} {}

  const v1::Model& config() const { return config_; }
  std::vector<Layer>& layers() { return layers_; }
  StepContext& context() { return *context_; }
  at::Tensor operator()(const at::Tensor& input);
  // Chunks of layers(), in their order: one, unless KeepLayers made more.
  struct Chunk {
    size_t begin = 0, end = 0;
  };
  const std::vector<Chunk>& chunks() const { return chunks_; }
  at::Tensor RunChunk(size_t chunk, const at::Tensor& input);
  // Of the blocks, in their order.
  std::vector<SelfAttention*> Attentions() const;
  // In the order of layers; tied weights once.
  std::vector<Parameter*> Parameters() const;

  // Keeps these chunks, given in the order of layers, once. Names do not change. Where only one of a tied model's embedding and
  // head is kept, it has the weight alone (ShardSpec::on_both_ends). Throws c10::Error where a head does not know how.
  void KeepLayers(const std::vector<ChunkLayers>& chunks);

  // Makes the tables that the layers read (rotary angles, causal mask) for sequences of up to `seq` tokens, with rows of the
  // context's runs, if it has any. Once, before the
  // first forward and outside of any recording; made of ATen operators only, so a fake device can follow.
  void CreateBuffers(c10::Device device, at::ScalarType compute_dtype, int64_t seq);
  // What CreateBuffers made: external inputs of a step, category buffer.
  std::vector<std::pair<std::string, at::Tensor>> Buffers() const;

 private:
  void PartTiedEnds(bool keeps_head);

  v1::Model config_;
  std::vector<Layer> layers_;
  std::shared_ptr<StepContext> context_;
  std::vector<Chunk> chunks_;
};

// Builds the model without memory. Parameter names are Hugging Face's (fused q/k/v of GPT-2 are split, see hf_weights.h).
// Errors: InvalidArgument for an architecture that is not known, or sizes that do not fit each other.
absl::StatusOr<std::unique_ptr<LanguageModel>> BuildModel(const v1::Model& config);

}  // namespace legoai::model
