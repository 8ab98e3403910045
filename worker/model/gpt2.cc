#include "worker/model/gpt2.h"

#include <ATen/ops/_softmax.h>
#include <ATen/ops/add.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/baddbmm.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/gelu.h>

#include <cmath>
#include <string>
#include <utility>

#include "worker/model/layers.h"
#include "worker/model/ops.h"

namespace legoai::model {
namespace {

InitRule Normal(double std) { return {InitRule::Kind::kNormal, std}; }

double ResidualStd(const v1::Model& config) {
  return config.initializer_range() / std::sqrt(2.0 * static_cast<double>(config.num_hidden_layers()));
}

// x [batch, seq, dim] is of this rank's tokens of each sample.
at::Tensor MaybeDrop(const at::Tensor& x, const StepContext& context, int64_t site, double p) {
  if (!context.training || p <= 0) return x;
  const std::vector<TokenRun> runs = context.RunsOf(x.size(1));
  const int64_t dim = x.size(2);
  DropoutRuns positions{.first = runs[0].first * dim};
  if (runs.size() > 1) {
    positions.length = runs[0].length * dim;
    positions.count = static_cast<int64_t>(runs.size());
    positions.stride = (runs[1].first - runs[0].first) * dim;
  }
  return DropoutFunction(x, context.rng, context.samples, site, p, positions);
}

// [batch, heads, queries, seq], of this rank's heads and tokens of each sample.
at::Tensor DropProbabilities(const at::Tensor& x, const StepContext& context, int64_t site, double p) {
  const int64_t seq = x.size(3), first_head = context.part * x.size(1) * seq * seq;
  DropoutRuns positions{.first = first_head};
  if (!context.runs.empty()) {
    const std::vector<TokenRun>& runs = context.runs;
    positions.first += runs[0].first * seq;
    positions.length = runs[0].length * seq;
    positions.count = static_cast<int64_t>(runs.size());
    positions.stride = runs.size() > 1 ? (runs[1].first - runs[0].first) * seq : 0;
    positions.outer_stride = seq * seq;
  }
  return DropoutFunction(x, context.rng, context.samples, site, p, positions);
}

// int64, of the tokens that `like` [batch, seq, dim] has.
at::Tensor Positions(const at::Tensor& like, const StepContext& context, const at::TensorOptions& options) {
  std::vector<at::Tensor> parts;
  for (const TokenRun& run : context.RunsOf(like.size(1))) {
    parts.push_back(run.first == 0 ? at::arange(run.length, options) : at::arange(run.first, run.first + run.length, options));
  }
  return parts.size() == 1 ? parts[0] : at::cat(parts);
}

class Gpt2Embedding : public Module {
 public:
  Gpt2Embedding(const v1::Model& config, std::shared_ptr<StepContext> context)
      : dropout_(config.embd_pdrop()), context_(std::move(context)) {
    const InitRule init = Normal(config.initializer_range());
    wte_ = AddChild("wte", std::make_unique<Embedding>(config.vocab_size(), config.hidden_size(), init));
    wpe_ = AddChild("wpe", std::make_unique<Embedding>(config.max_position_embeddings(), config.hidden_size(), init));
  }
  Embedding* wte() const { return wte_; }

 protected:
  at::Tensor Forward(const at::Tensor& input) override {
    const at::Tensor tokens = (*wte_)(input);
    return MaybeDrop(at::add(tokens, (*wpe_)(Positions(tokens, *context_, input.options()))), *context_, 0, dropout_);
  }

 private:
  double dropout_;
  std::shared_ptr<StepContext> context_;
  Embedding *wte_, *wpe_;
};

class Gpt2Attention : public SelfAttention {
 public:
  Gpt2Attention(const v1::Model& config, int64_t layer, std::shared_ptr<StepContext> context)
      : SelfAttention(config.head_dim(), [this](const auto& q, const auto& k, const auto& v) { return Core(q, k, v); }),
        site_(1 + 3 * layer),
        attention_dropout_(config.attn_pdrop()),
        residual_dropout_(config.resid_pdrop()),
        context_(std::move(context)) {
    const int64_t dim = config.hidden_size(), kv = config.num_key_value_heads() * config.head_dim();
    const InitRule init = Normal(config.initializer_range());
    q_proj_ = AddChild("q_proj", std::make_unique<Linear>(dim, dim, true, init));
    k_proj_ = AddChild("k_proj", std::make_unique<Linear>(dim, kv, true, init));
    v_proj_ = AddChild("v_proj", std::make_unique<Linear>(dim, kv, true, init));
    c_proj_ = AddChild("c_proj", std::make_unique<Linear>(dim, dim, true, Normal(ResidualStd(config))));
  }

 protected:
  at::Tensor Forward(const at::Tensor& input) override {
    return MaybeDrop((*c_proj_)(Attend(input)), *context_, site_ + 1, residual_dropout_);
  }

 private:
  // [batch, seq, dim] -> [batch, seq, dim]
  at::Tensor Attend(const at::Tensor& input) {
    const auto heads = [&](Linear& projection) { return Heads(projection(input)).transpose(1, 2); };
    const at::Tensor q = heads(*q_proj_), k = heads(*k_proj_), v = heads(*v_proj_);
    return Mix(q, k, v);
  }

  at::Tensor Core(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) const {
    return context_->training && attention_dropout_ > 0 ? CoreWithDropout(q, k, v) : LocalAttention(q, k, v);
  }

  // q [batch, heads, queries, head_dim], k and v [batch, heads, seq, head_dim]: all tokens of the sequence, and in q those that
  // this rank has of them.
  at::Tensor CoreWithDropout(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) const {
    const double scale = 1.0 / std::sqrt(static_cast<double>(head_dim()));
    const int64_t batch = q.size(0), heads = q.size(1), queries = q.size(2), seq = k.size(2);
    const at::Tensor mask = MaskOf(context_->causal_mask, queries, seq);
    const auto flat = [&](const at::Tensor& x) { return x.reshape({batch * heads, x.size(2), head_dim()}); };
    const at::Tensor scores = at::baddbmm(mask, flat(q), flat(k).transpose(1, 2), 1.0, scale);
    const at::Tensor probabilities = at::_softmax(scores, -1, /*half_to_float=*/false).view({batch, heads, queries, seq});
    const at::Tensor kept = DropProbabilities(probabilities, *context_, site_, attention_dropout_);
    return at::bmm(kept.view({batch * heads, queries, seq}), flat(v)).view({batch, heads, queries, head_dim()});
  }

  int64_t site_;
  double attention_dropout_, residual_dropout_;
  std::shared_ptr<StepContext> context_;
  Linear *q_proj_, *k_proj_, *v_proj_, *c_proj_;
};

class Gpt2Mlp : public Module {
 public:
  Gpt2Mlp(const v1::Model& config, int64_t layer, std::shared_ptr<StepContext> context)
      : site_(3 + 3 * layer), dropout_(config.resid_pdrop()), context_(std::move(context)) {
    const int64_t dim = config.hidden_size(), inner = config.intermediate_size();
    c_fc_ = AddChild("c_fc", std::make_unique<Linear>(dim, inner, true, Normal(config.initializer_range())));
    c_proj_ = AddChild("c_proj", std::make_unique<Linear>(inner, dim, true, Normal(ResidualStd(config))));
  }

 protected:
  at::Tensor Forward(const at::Tensor& input) override {
    return MaybeDrop((*c_proj_)(at::gelu((*c_fc_)(input), "tanh")), *context_, site_, dropout_);
  }

 private:
  int64_t site_;
  double dropout_;
  std::shared_ptr<StepContext> context_;
  Linear *c_fc_, *c_proj_;
};

class Gpt2Block : public Module {
 public:
  Gpt2Block(const v1::Model& config, int64_t layer, const std::shared_ptr<StepContext>& context) {
    ln_1_ = AddChild("ln_1", std::make_unique<LayerNorm>(config.hidden_size(), config.norm_eps()));
    attn_ = AddChild("attn", std::make_unique<Gpt2Attention>(config, layer, context));
    ln_2_ = AddChild("ln_2", std::make_unique<LayerNorm>(config.hidden_size(), config.norm_eps()));
    mlp_ = AddChild("mlp", std::make_unique<Gpt2Mlp>(config, layer, context));
  }

 protected:
  at::Tensor Forward(const at::Tensor& input) override {
    const at::Tensor hidden = at::add(input, (*attn_)((*ln_1_)(input)));
    return at::add(hidden, (*mlp_)((*ln_2_)(hidden)));
  }

 private:
  Module *ln_1_, *attn_, *ln_2_, *mlp_;
};

// What a parallel block adds to its input, of one norm's output: one region to tensor parallelism, with one sum at its end.
class Gpt2Sides : public Module {
 public:
  Gpt2Sides(const v1::Model& config, int64_t layer, const std::shared_ptr<StepContext>& context) {
    attn_ = AddChild("attn", std::make_unique<Gpt2Attention>(config, layer, context));
    mlp_ = AddChild("mlp", std::make_unique<Gpt2Mlp>(config, layer, context));
  }

 protected:
  at::Tensor Forward(const at::Tensor& input) override {
    const at::Tensor attended = (*attn_)(input);  // first, whatever the compiler does with arguments
    return at::add(attended, (*mlp_)(input));
  }

 private:
  Module *attn_, *mlp_;
};

class Gpt2ParallelBlock : public Module {
 public:
  Gpt2ParallelBlock(const v1::Model& config, int64_t layer, const std::shared_ptr<StepContext>& context) {
    ln_1_ = AddChild("ln_1", std::make_unique<LayerNorm>(config.hidden_size(), config.norm_eps()));
    sides_ = AddChild("sides", std::make_unique<Gpt2Sides>(config, layer, context));
  }

 protected:
  at::Tensor Forward(const at::Tensor& input) override { return at::add(input, (*sides_)((*ln_1_)(input))); }

 private:
  Module *ln_1_, *sides_;
};

// Parameters have one name in either block.
std::unique_ptr<Module> MakeBlock(const v1::Model& config, int64_t layer, const std::shared_ptr<StepContext>& context) {
  const std::string path = "transformer.h." + std::to_string(layer);
  if (!config.parallel_block()) {
    auto block = std::make_unique<Gpt2Block>(config, layer, context);
    block->SetPath(path);
    return block;
  }
  auto block = std::make_unique<Gpt2ParallelBlock>(config, layer, context);
  block->SetPath(path);
  block->Find("sides")->SetPath(path);
  return block;
}

}  // namespace

std::vector<Layer> Gpt2Layers(const v1::Model& config, const std::shared_ptr<StepContext>& context) {
  std::vector<Layer> layers;
  auto embedding = std::make_unique<Gpt2Embedding>(config, context);
  auto lm_head = config.tie_word_embeddings() ? std::make_unique<Linear>(embedding->wte()->weight())
                                              : std::make_unique<Linear>(config.hidden_size(), config.vocab_size(), false,
                                                                         Normal(config.initializer_range()));
  embedding->SetPath("transformer");
  layers.push_back({Layer::Kind::kEmbedding, -1, std::move(embedding)});
  for (int64_t i = 0; i < config.num_hidden_layers(); ++i) {
    layers.push_back({Layer::Kind::kBlock, i, MakeBlock(config, i, context)});
  }
  auto norm = std::make_unique<LayerNorm>(config.hidden_size(), config.norm_eps());
  auto head = std::make_unique<OutputHead>(std::move(norm), std::move(lm_head));
  head->SetPath("head");
  head->Find("norm")->SetPath("transformer.ln_f");
  head->Find("lm_head")->SetPath("lm_head");
  layers.push_back({Layer::Kind::kHead, -1, std::move(head)});
  return layers;
}

}  // namespace legoai::model
