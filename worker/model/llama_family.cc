#include "worker/model/llama_family.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/add.h>
#include <ATen/ops/addcmul.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/cos.h>
#include <ATen/ops/full.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/neg.h>
#include <ATen/ops/outer.h>
#include <ATen/ops/roll.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/sin.h>
#include <ATen/ops/stack.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string>
#include <utility>

#include "core/model/model_facts.h"
#include "worker/model/layers.h"

namespace legoai::model {
namespace {

InitRule Normal(double std) { return {InitRule::Kind::kNormal, std}; }

double ResidualStd(const v1::Model& config) {
  return config.initializer_range() / std::sqrt(2.0 * static_cast<double>(config.num_hidden_layers()));
}

// What both Gemmas have, or the second, stands in no field of its own.
bool IsGemma2(const v1::Model& config) { return config.architecture() == v1::GEMMA2; }
bool IsGemma(const v1::Model& config) { return config.architecture() == v1::GEMMA || IsGemma2(config); }

std::unique_ptr<RmsNorm> Norm(const v1::Model& config, int64_t dim) {
  return std::make_unique<RmsNorm>(dim, config.norm_eps(),
                                   IsGemma(config) ? RmsNorm::Factor::kOnePlusWeight : RmsNorm::Factor::kWeight);
}

AttentionCore CoreOf(const v1::Model& config, int64_t layer, const std::shared_ptr<StepContext>& context) {
  const int64_t window = WindowOf(config, layer);
  const double cap = config.attn_logit_softcapping(), scale = ScaleOfScores(config);
  if (cap == 0) {
    return [window](const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) { return LocalAttention(q, k, v, window); };
  }
  return [=](const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
    // A window as long as the sequences has no mask.
    const at::Tensor& mask = window > 0 && context->window_mask.defined() ? context->window_mask : context->causal_mask;
    return CappedAttention(q, k, v, MaskOf(mask, q.size(2), k.size(2)), scale, cap);
  };
}

class Attention : public SelfAttention {
 public:
  Attention(const v1::Model& config, int64_t layer, std::shared_ptr<StepContext> context)
      : SelfAttention(config.head_dim(), CoreOf(config, layer, context)), context_(std::move(context)) {
    const int64_t dim = config.hidden_size(), width = config.num_attention_heads() * head_dim();
    const int64_t kv_width = config.num_key_value_heads() * head_dim();
    const InitRule init = Normal(config.initializer_range());
    q_proj_ = AddChild("q_proj", std::make_unique<Linear>(dim, width, config.qkv_bias(), init));
    k_proj_ = AddChild("k_proj", std::make_unique<Linear>(dim, kv_width, config.qkv_bias(), init));
    v_proj_ = AddChild("v_proj", std::make_unique<Linear>(dim, kv_width, config.qkv_bias(), init));
    if (config.qk_norm()) {
      q_norm_ = AddChild("q_norm", Norm(config, head_dim()));
      k_norm_ = AddChild("k_norm", Norm(config, head_dim()));
    }
    o_proj_ = AddChild("o_proj", std::make_unique<Linear>(width, dim, false, Normal(ResidualStd(config))));
  }

 protected:
  at::Tensor Forward(const at::Tensor& input) override { return (*o_proj_)(Attend(input)); }

 private:
  // [batch, seq, dim] -> [batch, seq, heads * head_dim]
  at::Tensor Attend(const at::Tensor& input) {
    const auto rotated = [&](Module& projection, Module* norm) {
      const at::Tensor heads = Heads(projection(input)), normalized = norm == nullptr ? heads : (*norm)(heads);
      return ApplyRope(normalized, context_->rope_cos, context_->rope_sin, context_->first_position).transpose(1, 2);
    };
    const at::Tensor q = rotated(*q_proj_, q_norm_), k = rotated(*k_proj_, k_norm_);
    return Mix(q, k, Heads((*v_proj_)(input)).transpose(1, 2));
  }

  std::shared_ptr<StepContext> context_;
  Linear *q_proj_, *k_proj_, *v_proj_, *o_proj_;
  Module *q_norm_ = nullptr, *k_norm_ = nullptr;
};

class GatedMlp : public Module {
 public:
  explicit GatedMlp(const v1::Model& config) : is_gelu_(IsGemma(config)) {
    const int64_t dim = config.hidden_size(), inner = config.intermediate_size();
    const InitRule init = Normal(config.initializer_range());
    gate_proj_ = AddChild("gate_proj", std::make_unique<Linear>(dim, inner, false, init));
    up_proj_ = AddChild("up_proj", std::make_unique<Linear>(dim, inner, false, init));
    down_proj_ = AddChild("down_proj", std::make_unique<Linear>(inner, dim, false, Normal(ResidualStd(config))));
  }

 protected:
  at::Tensor Forward(const at::Tensor& input) override { return (*down_proj_)(Inner(input)); }

 private:
  at::Tensor Inner(const at::Tensor& input) {
    const at::Tensor gate = (*gate_proj_)(input), open = is_gelu_ ? at::gelu(gate, "tanh") : at::silu(gate);
    return at::mul(open, (*up_proj_)(input));
  }

  bool is_gelu_;
  Linear *gate_proj_, *up_proj_, *down_proj_;
};

class Block : public Module {
 public:
  Block(const v1::Model& config, int64_t layer, const std::shared_ptr<StepContext>& context) {
    const int64_t dim = config.hidden_size();
    const bool after = IsGemma2(config);  // what attention and feed-forward give is normalized, too
    input_norm_ = AddChild("input_layernorm", Norm(config, dim));
    attention_ = AddChild("self_attn", std::make_unique<Attention>(config, layer, context));
    if (after) attention_end_ = AddChild("post_attention_layernorm", Norm(config, dim));
    mlp_norm_ = AddChild(after ? "pre_feedforward_layernorm" : "post_attention_layernorm", Norm(config, dim));
    mlp_ = AddChild("mlp", std::make_unique<GatedMlp>(config));
    if (after) mlp_end_ = AddChild("post_feedforward_layernorm", Norm(config, dim));
  }

 protected:
  at::Tensor Forward(const at::Tensor& input) override {
    const at::Tensor hidden = at::add(input, Ended((*attention_)((*input_norm_)(input)), attention_end_));
    return at::add(hidden, Ended((*mlp_)((*mlp_norm_)(hidden)), mlp_end_));
  }

 private:
  static at::Tensor Ended(const at::Tensor& output, Module* norm) { return norm == nullptr ? output : (*norm)(output); }

  Module *input_norm_, *attention_, *mlp_norm_, *mlp_;
  Module *attention_end_ = nullptr, *mlp_end_ = nullptr;
};

}  // namespace

double ScaleOfScores(const v1::Model& config) {
  const double scalar = config.query_pre_attn_scalar();
  return 1.0 / std::sqrt(scalar > 0 ? scalar : static_cast<double>(config.head_dim()));
}

std::vector<Layer> LlamaFamilyLayers(const v1::Model& config, const std::shared_ptr<StepContext>& context) {
  const int64_t dim = config.hidden_size(), vocab = config.vocab_size();
  const InitRule init = Normal(config.initializer_range());
  std::vector<Layer> layers;
  auto embedding = std::make_unique<Embedding>(vocab, dim, init, IsGemma(config) ? std::sqrt(static_cast<double>(dim)) : 1);
  auto lm_head = config.tie_word_embeddings() ? std::make_unique<Linear>(embedding->weight())
                                              : std::make_unique<Linear>(dim, vocab, false, init);
  embedding->SetPath("model.embed_tokens");
  layers.push_back({Layer::Kind::kEmbedding, -1, std::move(embedding)});
  for (int64_t i = 0; i < config.num_hidden_layers(); ++i) {
    auto block = std::make_unique<Block>(config, i, context);
    block->SetPath("model.layers." + std::to_string(i));
    layers.push_back({Layer::Kind::kBlock, i, std::move(block)});
  }
  auto head = std::make_unique<OutputHead>(Norm(config, dim), std::move(lm_head), config.final_logit_softcapping());
  head->SetPath("head");
  head->Find("norm")->SetPath("model.norm");
  head->Find("lm_head")->SetPath("lm_head");
  layers.push_back({Layer::Kind::kHead, -1, std::move(head)});
  return layers;
}

std::vector<double> RopeFrequencies(const v1::Model& config) {
  const int64_t dim = config.head_dim();
  std::vector<double> frequencies;
  for (int64_t i = 0; i < dim; i += 2) {
    double frequency = std::pow(config.rope_theta(), -static_cast<double>(i) / static_cast<double>(dim));
    if (config.has_rope_scaling()) {
      // Long wavelengths are stretched by `factor`, short ones kept, those in between interpolated.
      const v1::RopeScaling& scaling = config.rope_scaling();
      const double turns = static_cast<double>(scaling.original_max_position_embeddings()) * frequency / (2 * std::numbers::pi);
      const double keep =
          std::clamp((turns - scaling.low_freq_factor()) / (scaling.high_freq_factor() - scaling.low_freq_factor()), 0.0, 1.0);
      frequency *= keep + (1 - keep) / scaling.factor();
    }
    frequencies.push_back(frequency);
  }
  return frequencies;
}

void MakeRopeTables(const v1::Model& config, c10::Device device, at::ScalarType dtype, int64_t seq, StepContext* context) {
  at::NoGradGuard no_grad;
  const auto options = at::TensorOptions().device(device).dtype(at::kFloat);
  // Operators only: the frequencies travel as scalars, so this works where tensors have no memory.
  std::vector<at::Tensor> frequencies;
  for (double frequency : RopeFrequencies(config)) frequencies.push_back(at::full({}, frequency, options));
  const at::Tensor angles = at::outer(at::arange(seq, options), at::stack(frequencies));
  const at::Tensor sin = at::sin(angles), cos = at::cos(angles);
  context->rope_cos = at::cat({cos, cos}, 1).to(dtype);
  context->rope_sin = at::cat({at::neg(sin), sin}, 1).to(dtype);
}

at::Tensor ApplyRope(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin, int64_t first) {
  const int64_t seq = x.size(1), dim = x.size(3);
  TORCH_CHECK(cos.defined() && cos.size(0) >= first + seq && cos.size(1) == dim, "rotary tables for ",
              cos.defined() ? cos.size(0) : 0, " positions do not cover positions ", first, " to ", first + seq);
  const at::Tensor c = cos.narrow(0, first, seq).unsqueeze(1), s = sin.narrow(0, first, seq).unsqueeze(1);
  return at::addcmul(at::mul(x, c), at::roll(x, {dim / 2}, {3}), s);
}

}  // namespace legoai::model
