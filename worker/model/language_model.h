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

// The part of the model in a chunk: blocks [first, last), and the ends.
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
  // Chunks of layers(), in order: one, unless KeepLayers made more.
  struct Chunk {
    size_t begin = 0, end = 0;
  };
  const std::vector<Chunk>& chunks() const { return chunks_; }
  at::Tensor RunChunk(size_t chunk, const at::Tensor& input);
  // Of the blocks, in order.
  std::vector<SelfAttention*> Attentions() const;
  // In the order of layers; tied weights once.
  std::vector<Parameter*> Parameters() const;

  // Keeps only these chunks, given in the order of layers. Call it once. Names do not change. If only one of a tied model's
  // embedding and head is kept, it gets its own copy of the weight (ShardSpec::on_both_ends). Throws c10::Error if a head does
  // not support this.
  void KeepLayers(const std::vector<ChunkLayers>& chunks);

  // Creates the tables that the layers read (rotary angles, causal mask) for sequences of up to `seq` tokens, restricted to the
  // rows of the context's runs, if it has any. Call it once, before the first forward and outside of any recording. Uses ATen
  // operators only, so it works on a fake device.
  void CreateBuffers(c10::Device device, at::ScalarType compute_dtype, int64_t seq);
  // The tables of CreateBuffers: external inputs of a step, category buffer.
  std::vector<std::pair<std::string, at::Tensor>> Buffers() const;

 private:
  void PartTiedEnds(bool keeps_head);

  v1::Model config_;
  std::vector<Layer> layers_;
  std::shared_ptr<StepContext> context_;
  std::vector<Chunk> chunks_;
};

// Builds the model without memory. Parameter names are Hugging Face's (fused q/k/v of GPT-2 are split, see hf_weights.h). Errors:
// InvalidArgument for an unknown architecture or inconsistent sizes.
absl::StatusOr<std::unique_ptr<LanguageModel>> BuildModel(const v1::Model& config);

}  // namespace legoai::model
