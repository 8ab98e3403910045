#include "worker/generate/cached_model.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "worker/model/ops.h"

namespace legoai::generate {
namespace {

// Keys and values of one block, [1, kv_heads, capacity, head_dim].
class Cache {
 public:
  Cache(const v1::Model& config, at::ScalarType dtype, int64_t capacity, const model::StepContext* context)
      : context_(context),
        keys_(at::empty({1, config.num_key_value_heads(), capacity, config.head_dim()}, at::TensorOptions().dtype(dtype))),
        values_(at::empty_like(keys_)) {}

  // Adds k and v and attends to all that is there.
  at::Tensor operator()(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) const {
    const int64_t seen = context_->first_position, seq = q.size(2);
    TORCH_CHECK(seen == 0 || seq == 1, "after the first tokens, one at a time can be fed, not ", seq);
    keys_.narrow(2, seen, seq).copy_(k);
    values_.narrow(2, seen, seq).copy_(v);
    const double scale = 1.0 / std::sqrt(static_cast<double>(q.size(3)));
    return model::AttentionFunction(q, keys_.narrow(2, 0, seen + seq), values_.narrow(2, 0, seen + seq), /*causal=*/seen == 0,
                                    scale);
  }

 private:
  const model::StepContext* context_;
  at::Tensor keys_, values_;
};

}  // namespace

int64_t CacheBytes(const v1::Model& config, int64_t capacity, int64_t bytes_per_element) {
  return 2 * config.num_hidden_layers() * config.num_key_value_heads() * config.head_dim() * capacity * bytes_per_element;
}

CachedModel::CachedModel(std::unique_ptr<model::LanguageModel> model, at::ScalarType dtype, int64_t capacity)
    : capacity_(capacity), model_(std::move(model)) {
  const v1::Model& config = model_->config();
  TORCH_CHECK(capacity >= 1 && capacity <= config.max_position_embeddings(), "a cache of ", capacity, " tokens for a context of ",
              config.max_position_embeddings());
  model_->context().training = false;
  if (config.architecture() == v1::LLAMA) model_->CreateBuffers(at::kCPU, dtype, capacity);
  for (model::SelfAttention* attention : model_->Attentions())
    attention->ReplaceCore(Cache(config, dtype, capacity, &model_->context()));
}

int64_t CachedModel::length() const { return model_->context().first_position; }

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
  model_->context().first_position += count;
  return hidden.view({-1}).to(at::kFloat);
}

}  // namespace legoai::generate
