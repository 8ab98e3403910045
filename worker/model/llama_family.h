// Llama 3 (LlamaForCausalLM): RMS norms, rotary positions, grouped-query attention, a gated feed-forward layer ("The Llama 3 Herd
// of Models", 2024, section 3.2), and families that differ from it in a few settings. Names and numbers are those of Hugging Face
// transformers.
//
//              | q, k, v have biases | q, k normalized by head | attention sees    | norms multiply by | gate | embedding times
//   Llama      |                     |                         | all before        | weight            | SiLU | 1
//   Mistral    |                     |                         | sliding_window    | weight            | SiLU | 1
//   Qwen 2.5   | yes                 |                         | sliding_window    | weight            | SiLU | 1
//   Qwen 3     |                     | yes                     | sliding_window    | weight            | SiLU | 1
//   Gemma      |                     |                         | all before        | 1 + weight        | GELU | sqrt(hidden_size)
//   Gemma 2    |                     |                         | one and the other | 1 + weight        | GELU | sqrt(hidden_size)
//
// (Jiang et al. 2023; Qwen Team 2024 and 2025; Gemma Team 2024. GELU is the tanh approximation. Without a sliding window
// attention sees all preceding positions.) In Gemma 2 the first block and every second one after it have the window; scores of
// attention and logits are capped (layers.h); scores are divided by the root of query_pre_attn_scalar; and what attention and
// feed-forward give is normalized before it is added.
//
// Layers: "model.embed_tokens"; "model.layers.N" with input_layernorm, self_attn.{q,k,v,o}_proj, in Qwen 3 self_attn.{q,k}_norm,
// post_attention_layernorm (before the feed-forward; in Gemma 2 after attention, with {pre,post}_feedforward_layernorm besides),
// mlp.{gate,up,down}_proj; the head (path "head") with "model.norm" and "lm_head". Weights start from a normal distribution of
// standard deviation initializer_range, divided by sqrt(2 layers) for o_proj and down_proj, which write to the residual.
//
// The number of heads follows from the widths of the projections, and the sequence length from the input of self_attn, so the
// model need not know of tensor and sequence parallelism, which gather before and scatter after self_attn and mlp.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "proto/legoai/v1/model.pb.h"
#include "worker/model/module.h"

namespace legoai::model {

// The config must have been checked (BuildModel). All layers read `context`.
std::vector<Layer> LlamaFamilyLayers(const v1::Model& config, const std::shared_ptr<StepContext>& context);

// What scores of attention are multiplied by: 1 / sqrt(head_dim), or of query_pre_attn_scalar.
double ScaleOfScores(const v1::Model& config);

// Angle per position of each pair of dimensions, [head_dim / 2], with Llama 3.1's scaling if the config has it.
std::vector<double> RopeFrequencies(const v1::Model& config);

// Fills context->rope_cos and rope_sin, [seq, head_dim]. The first half of rope_sin is negated, so that
// rotated = x * cos + roll(x, head_dim / 2) * sin.
void MakeRopeTables(const v1::Model& config, c10::Device device, at::ScalarType dtype, int64_t seq, StepContext* context);

// x [batch, seq, heads, head_dim] rotated by the tables' rows [first, first + seq).
at::Tensor ApplyRope(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin, int64_t first);

}  // namespace legoai::model
