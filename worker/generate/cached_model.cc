#include "worker/generate/cached_model.h"

#include <ATen/ops/add.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "worker/model/llama.h"
#include "worker/model/ops.h"

namespace legoai::generate {
namespace {

using model::ForwardFunction;
using model::Module;

// Keys and values of one block, [1, kv_heads, capacity, head_dim].
class Cache {
 public:
  Cache(const v1::Model& config, at::ScalarType dtype, int64_t capacity)
      : keys_(at::empty({1, config.num_key_value_heads(), capacity, config.head_dim()}, at::TensorOptions().dtype(dtype))),
        values_(at::empty_like(keys_)) {}

  // Adds k and v, the keys and values of positions `length` and after, and attends to all up to there. q, k, v [1, heads, seq,
  // head_dim]; result [1, seq, heads * head_dim].
  at::Tensor Attend(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, int64_t length) {
    const int64_t seq = q.size(2);
    TORCH_CHECK(length == 0 || seq == 1, "after the first tokens, one at a time can be fed, not ", seq);
    keys_.narrow(2, length, seq).copy_(k);
    values_.narrow(2, length, seq).copy_(v);
    const double scale = 1.0 / std::sqrt(static_cast<double>(q.size(3)));
    const at::Tensor out = model::AttentionFunction(q, keys_.narrow(2, 0, length + seq), values_.narrow(2, 0, length + seq),
                                                    /*causal=*/length == 0, scale);
    return out.transpose(1, 2).reshape({1, seq, -1});
  }

 private:
  at::Tensor keys_, values_;
};

Module* Child(const Module& parent, const char* name) {
  Module* child = parent.Find(name);
  TORCH_CHECK(child != nullptr, parent.path(), " has no ", name);
  return child;
}

// Stands in for the forward of a block's attention.
class CachedAttention {
 public:
  CachedAttention(const v1::Model& config, const Module& attention, at::ScalarType dtype, int64_t capacity,
                  const model::StepContext* context, std::shared_ptr<const Position> position)
      : rotary_(config.architecture() == v1::LLAMA),
        head_dim_(config.head_dim()),
        context_(context),
        position_(std::move(position)),
        cache_(std::make_shared<Cache>(config, dtype, capacity)),
        q_proj_(Child(attention, "q_proj")),
        k_proj_(Child(attention, "k_proj")),
        v_proj_(Child(attention, "v_proj")),
        out_proj_(Child(attention, rotary_ ? "o_proj" : "c_proj")) {}

  at::Tensor operator()(const at::Tensor& input, const ForwardFunction&) const {
    const auto heads = [&](Module& projection) { return projection(input).view({1, input.size(1), -1, head_dim_}); };
    const at::Tensor q = Rotated(heads(*q_proj_)).transpose(1, 2), k = Rotated(heads(*k_proj_)).transpose(1, 2);
    return (*out_proj_)(cache_->Attend(q, k, heads(*v_proj_).transpose(1, 2), position_->next));
  }

 private:
  at::Tensor Rotated(const at::Tensor& x) const {
    if (!rotary_) return x;
    return model::ApplyRope(x, context_->rope_cos.narrow(0, position_->next, x.size(1)),
                            context_->rope_sin.narrow(0, position_->next, x.size(1)));
  }

  bool rotary_;
  int64_t head_dim_;
  const model::StepContext* context_;
  std::shared_ptr<const Position> position_;
  std::shared_ptr<Cache> cache_;
  Module *q_proj_, *k_proj_, *v_proj_, *out_proj_;
};

// Stands in for the forward of GPT-2's embedding.
struct CachedPositions {
  Module *tokens, *positions;
  std::shared_ptr<const Position> position;

  at::Tensor operator()(const at::Tensor& input, const ForwardFunction&) const {
    const at::Tensor places = at::arange(position->next, position->next + input.size(1), input.options());
    return at::add((*tokens)(input), (*positions)(places));
  }
};

}  // namespace

int64_t CacheBytes(const v1::Model& config, int64_t capacity, int64_t bytes_per_element) {
  return 2 * config.num_hidden_layers() * config.num_key_value_heads() * config.head_dim() * capacity * bytes_per_element;
}

CachedModel::CachedModel(std::unique_ptr<model::LanguageModel> model, at::ScalarType dtype, int64_t capacity)
    : capacity_(capacity), position_(std::make_shared<Position>()), model_(std::move(model)) {
  using Kind = model::Layer::Kind;
  const v1::Model& config = model_->config();
  TORCH_CHECK(capacity >= 1 && capacity <= config.max_position_embeddings(), "a cache of ", capacity, " tokens for a context of ",
              config.max_position_embeddings());
  const bool llama = config.architecture() == v1::LLAMA;
  model_->context().training = false;
  if (llama) model_->CreateBuffers(at::kCPU, dtype, capacity);
  for (model::Layer& layer : model_->layers()) {
    Module& module = *layer.module;
    if (layer.kind == Kind::kEmbedding && !llama) {
      module.Intercept(CachedPositions{Child(module, "wte"), Child(module, "wpe"), position_});
    } else if (layer.kind == Kind::kBlock) {
      Module* attention = Child(module, llama ? "self_attn" : "attn");
      attention->Intercept(CachedAttention(config, *attention, dtype, capacity, &model_->context(), position_));
    }
  }
}

at::Tensor CachedModel::Feed(std::span<const int64_t> tokens) {
  c10::NoGradGuard no_grad;
  const auto count = static_cast<int64_t>(tokens.size());
  at::Tensor hidden = at::empty({1, count}, at::TensorOptions().dtype(at::kLong));
  std::copy(tokens.begin(), tokens.end(), hidden.mutable_data_ptr<int64_t>());
  for (model::Layer& layer : model_->layers()) {
    // The head sees the last position alone: logits of a whole prompt would take more memory than anything else.
    if (layer.kind == model::Layer::Kind::kHead) hidden = hidden.narrow(1, count - 1, 1).contiguous();
    hidden = (*layer.module)(hidden);
  }
  position_->next += count;
  return hidden.view({-1}).to(at::kFloat);
}

}  // namespace legoai::generate
