#include "worker/model/layers.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_softmax.h>
#include <ATen/ops/add.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/div.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/full.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/native_layer_norm.h>
#include <ATen/ops/native_layer_norm_backward.h>
#include <ATen/ops/reshape.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/tril.h>
#include <ATen/ops/triu.h>
#include <torch/csrc/autograd/custom_function.h>

#include <cmath>
#include <limits>
#include <optional>

#include "worker/model/ops.h"
#include "worker/model/weight_gradients.h"

namespace legoai::model {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

at::Tensor InputGradient(const at::Tensor& grad, const at::Tensor& weight) { return at::mm(grad, weight); }
at::Tensor WeightGradient(const at::Tensor& grad, const at::Tensor& input) { return at::mm(grad.t(), input); }

c10::intrusive_ptr<SavedInput> SavedInputOf(AutogradContext* context) {
  return c10::intrusive_ptr<SavedInput>::reclaim_copy(
      static_cast<SavedInput*>(context->saved_data["input"].toCapsule().get()));
}

// Everything runs below autograd: the flat views are no views to autograd, and the output may be changed in place.
struct LinearAutograd : torch::autograd::Function<LinearAutograd> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& weight,
                            const std::optional<at::Tensor>& bias) {
    at::AutoDispatchBelowADInplaceOrView below;
    std::vector<int64_t> sizes = x.sizes().vec();
    const at::Tensor flat = x.reshape({-1, sizes.back()});
    context->saved_data["input"] = c10::IValue::make_capsule(SavedInput::Of(x, flat));
    context->saved_data["weight"] = weight;
    context->saved_data["sizes"] = sizes;
    context->saved_data["bias"] = bias.has_value();
    sizes.back() = weight.size(0);
    return (bias ? at::addmm(*bias, flat, weight.t()) : at::mm(flat, weight.t())).view(sizes);
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    at::AutoDispatchBelowADInplaceOrView below;
    const at::Tensor weight = context->saved_data["weight"].toTensor();
    const at::Tensor grad = grads[0].reshape({-1, weight.size(0)});
    grads.clear();
    const c10::intrusive_ptr<SavedInput> input = SavedInputOf(context);
    WeightGradients* const later = DeferWeightGradients::Current();
    const bool now = context->needs_input_grad(1) && later == nullptr;
    if (now) input->Prepare();
    variable_list result(3);
    if (context->needs_input_grad(0)) {
      result[0] = InputGradient(grad, weight).view(context->saved_data["sizes"].toIntVector());
    }
    if (now) {
      result[1] = WeightGradient(grad, input->Take());
    } else if (context->needs_input_grad(1)) {
      later->Add({weight, grad, input});
    }
    if (context->saved_data["bias"].toBool() && context->needs_input_grad(2)) result[2] = at::sum(grad, {0});
    return result;
  }
};

struct LayerNormAutograd : torch::autograd::Function<LayerNormAutograd> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                            double eps) {
    at::AutoDispatchBelowADInplaceOrView below;
    auto [out, mean, rstd] = at::native_layer_norm(x, {x.size(-1)}, weight, bias, eps);
    context->save_for_backward({x, mean, rstd});
    context->saved_data["weight"] = weight;
    context->saved_data["bias"] = bias;
    return out;
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    at::AutoDispatchBelowADInplaceOrView below;
    const variable_list saved = context->get_saved_variables();
    auto [x, weight, bias] = at::native_layer_norm_backward(
        grads[0], saved[0], {saved[0].size(-1)}, saved[1], saved[2], context->saved_data["weight"].toTensor(),
        context->saved_data["bias"].toTensor(),
        {context->needs_input_grad(0), context->needs_input_grad(1), context->needs_input_grad(2)});
    return {x, weight, bias, at::Tensor()};
  }
};

}  // namespace

at::Tensor LinearFunction(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  return LinearAutograd::apply(x, weight, bias.defined() ? std::optional<at::Tensor>(bias) : std::nullopt);
}

Embedding::Embedding(int64_t rows, int64_t dim, InitRule init, double scale)
    : weight_(AddParameter("weight", {rows, dim}, init)), scale_(scale) {}
at::Tensor Embedding::Forward(const at::Tensor& input) {
  const at::Tensor found = at::embedding(weight_->value, input);
  if (scale_ == 1) return found;
  const float scale = static_cast<float>(scale_);
  switch (found.scalar_type()) {
    case at::kBFloat16: return at::mul(found, static_cast<double>(static_cast<at::BFloat16>(scale)));
    case at::kHalf: return at::mul(found, static_cast<double>(static_cast<at::Half>(scale)));
    default: return at::mul(found, scale_);
  }
}

Linear::Linear(int64_t in, int64_t out, bool bias, InitRule init) : weight_(AddParameter("weight", {out, in}, init)) {
  if (bias) bias_ = AddParameter("bias", {out}, {InitRule::Kind::kZeros});
}
void Linear::OwnWeight() {
  TORCH_CHECK(tied_, "weight ", weight_->name(), " is owned already");
  const Parameter& shared = *weight_;
  weight_ = AddParameter("weight", shared.spec.global_shape, shared.init);
  weight_->spec.name = shared.name();
  tied_ = false;
}

at::Tensor Linear::Forward(const at::Tensor& input) {
  return LinearFunction(input, weight_->value, bias_ != nullptr && adds_bias_ ? bias_->value : at::Tensor());
}

RmsNorm::RmsNorm(int64_t dim, double eps, Factor factor)
    : weight_(AddParameter("weight", {dim}, {factor == Factor::kWeight ? InitRule::Kind::kOnes : InitRule::Kind::kZeros})),
      eps_(eps),
      factor_(factor) {}
at::Tensor RmsNorm::Forward(const at::Tensor& input) {
  return RmsNormFunction(input, weight_->value, eps_, factor_ == Factor::kWeight ? 0 : 1);
}

LayerNorm::LayerNorm(int64_t dim, double eps)
    : weight_(AddParameter("weight", {dim}, {InitRule::Kind::kOnes})),
      bias_(AddParameter("bias", {dim}, {InitRule::Kind::kZeros})),
      eps_(eps) {}
at::Tensor LayerNorm::Forward(const at::Tensor& input) {
  return LayerNormAutograd::apply(input, weight_->value, bias_->value, eps_);
}

OutputHead::OutputHead(std::unique_ptr<Module> norm, std::unique_ptr<Linear> lm_head, double cap)
    : norm_(AddChild("norm", std::move(norm))), lm_head_(AddChild("lm_head", std::move(lm_head))), cap_(cap) {}
at::Tensor OutputHead::Forward(const at::Tensor& input) {
  at::Tensor logits = (*lm_head_)((*norm_)(input));
  if (cap_ == 0) return logits;
  logits = at::div(logits, cap_);  // one by one, so that none outlives its use
  logits = at::tanh(logits);
  return at::mul(logits, cap_);
}

at::Tensor LocalAttention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, int64_t window) {
  const double scale = 1.0 / std::sqrt(static_cast<double>(q.size(3)));
  if (window > 0 && window < q.size(2)) return WindowedAttentionFunction(q, k, v, window, scale);
  return AttentionFunction(q, k, v, /*causal=*/true, scale);
}

at::Tensor CausalMask(int64_t seq, int64_t window, const at::TensorOptions& options) {
  at::NoGradGuard no_grad;
  const at::Tensor never = at::full({seq, seq}, -std::numeric_limits<double>::infinity(), options), later = at::triu(never, 1);
  return window > 0 && window < seq ? at::add(later, at::tril(never, -window)) : later;
}

at::Tensor MaskOf(const at::Tensor& mask, int64_t queries, int64_t seq) {
  TORCH_CHECK(mask.defined() && mask.size(0) >= queries && mask.size(1) >= seq, "the causal mask does not cover ", queries,
              " queries of a sequence of ", seq);
  return mask.narrow(0, 0, queries).narrow(1, 0, seq);
}

at::Tensor CappedAttention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& mask, double scale,
                           double cap) {
  const int64_t batch = q.size(0), heads = q.size(1), queries = q.size(2), dim = q.size(3), kv_heads = k.size(1), seq = k.size(2);
  // The heads that share a key are more queries of it.
  const int64_t groups = batch * kv_heads, rows = heads / kv_heads * queries;
  const at::Tensor scaled = at::mul(q, scale / cap).reshape({groups, rows, dim}), keys = k.reshape({groups, seq, dim});
  at::Tensor scores = at::bmm(scaled, keys.transpose(1, 2));
  scores = at::tanh(scores).view({batch, heads, queries, seq});
  scores = mask.defined() ? at::add(mask, scores, cap) : at::mul(scores, cap);
  const at::Tensor probabilities = at::_softmax(scores, -1, /*half_to_float=*/false).view({groups, rows, seq});
  scores.reset();
  return at::bmm(probabilities, v.reshape({groups, seq, dim})).view({batch, heads, queries, dim});
}

}  // namespace legoai::model
