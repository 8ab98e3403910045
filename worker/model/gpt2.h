// GPT-2 (GPT2LMHeadModel): learned positions, layer norms, gelu_new, dropouts where transformers has them, tied embeddings. And
// the GPT of Megatron (GPTModel in config.json), which differs by what the config says: fewer key-value heads than heads, an
// output weight of its own, and with parallel_block x + attn(ln_1(x)) + mlp(ln_1(x)) in the place of two residuals.
//
// Layers: "transformer" with wte and wpe; "transformer.h.N" with ln_1, attn.{q_proj,k_proj,v_proj,c_proj}, ln_2 (none in a
// parallel block), mlp.{c_fc,c_proj}; the head (path "head") with "transformer.ln_f" and "lm_head". All weights are [out, in]:
// Hugging Face's Conv1D stores [in, out] and q, k, v fused as attn.c_attn; hf_weights.h maps between them. Weights start from a
// normal distribution of standard deviation initializer_range, divided by sqrt(2 layers) for both c_proj.
//
// Dropout sites (ops.h): 0 embedding; for block N: 1 + 3 N attention probabilities, 2 + 3 N attention's residual, 3 + 3 N the
// feed-forward's residual. Attention probabilities are materialized only for their dropout; otherwise attention is
// lego::attention.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "proto/legoai/v1/model.pb.h"
#include "worker/model/module.h"

namespace legoai::model {

// The config must have been checked (BuildModel). All layers read `context`.
std::vector<Layer> Gpt2Layers(const v1::Model& config, const std::shared_ptr<StepContext>& context);

}  // namespace legoai::model
