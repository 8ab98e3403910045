// Kernels of lego::attention: ATen's flash attention of the device (on CUDA, for fp32, memory-efficient attention), behind one
// name, so that the fake device (a CPU to ATen) takes the same path as the device it stands for.
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/_scaled_dot_product_efficient_attention.h>
#include <ATen/ops/_scaled_dot_product_efficient_attention_backward.h>
#include <ATen/ops/_scaled_dot_product_flash_attention.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_backward.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <torch/library.h>

#include <limits>
#include <tuple>

namespace legoai::model {
namespace {

using TwoTensors = std::tuple<at::Tensor, at::Tensor>;
using ThreeTensors = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

void CheckArguments(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
  TORCH_CHECK(q.dim() == 4 && k.dim() == 4 && v.sizes() == k.sizes(), "attention: q ", q.sizes(), ", k ", k.sizes(), ", v ",
              v.sizes(), " must be [batch, heads, seq, head_dim]");
  TORCH_CHECK(q.size(0) == k.size(0) && q.size(3) == k.size(3) && k.size(1) > 0 && q.size(1) % k.size(1) == 0, "attention: q ",
              q.sizes(), " does not fit k ", k.sizes());
  TORCH_CHECK(q.scalar_type() == k.scalar_type() && q.scalar_type() == v.scalar_type(), "attention: dtypes ", q.scalar_type(),
              ", ", k.scalar_type(), ", ", v.scalar_type(), " differ");
  TORCH_CHECK(q.stride(3) == 1 && k.stride(3) == 1 && v.stride(3) == 1, "attention: the last stride must be 1");
}

// [batch, heads, seq, head_dim] that lies as [batch, seq, heads, head_dim].
at::Tensor EmptyBySequence(const at::Tensor& like) {
  return at::empty({like.size(0), like.size(2), like.size(1), like.size(3)}, like.options()).transpose(1, 2);
}

// The CPU's, and CUDA's but for the strides of lse and, in fp32, its padding.
TwoTensors AttentionMeta(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, bool causal, double scale) {
  CheckArguments(q, k, v);
  return {at::empty_like(q.transpose(1, 2)).transpose(1, 2),
          at::empty({q.size(0), q.size(2), q.size(1)}, q.options().dtype(at::kFloat)).transpose(1, 2)};
}

ThreeTensors AttentionBackwardMeta(const at::Tensor& grad, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                   const at::Tensor& out, const at::Tensor& lse, bool causal, double scale) {
  CheckArguments(q, k, v);
  TORCH_CHECK(grad.sizes() == q.sizes(), "attention_backward: the gradient ", grad.sizes(), " must be like q ", q.sizes());
  return {EmptyBySequence(q), EmptyBySequence(k), EmptyBySequence(v)};
}

TwoTensors AttentionCpu(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, bool causal, double scale) {
  CheckArguments(q, k, v);
  at::AutoDispatchBelowADInplaceOrView below;
  return at::_scaled_dot_product_flash_attention_for_cpu(q, k, v, 0.0, causal, std::nullopt, scale);
}

ThreeTensors AttentionBackwardCpu(const at::Tensor& grad, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                  const at::Tensor& out, const at::Tensor& lse, bool causal, double scale) {
  CheckArguments(q, k, v);
  at::AutoDispatchBelowADInplaceOrView below;
  return at::_scaled_dot_product_flash_attention_for_cpu_backward(grad, q, k, v, out, lse, 0.0, causal, std::nullopt, scale);
}

// FlashAttention has no fp32; memory-efficient attention wants a head of keys for each head of queries.
bool IsFlash(const at::Tensor& q) { return q.scalar_type() != at::kFloat; }

void CheckCudaHeads(const at::Tensor& q) {
  const int64_t dim = q.size(3);
  TORCH_CHECK(IsFlash(q) ? dim % 8 == 0 && dim <= 256 : dim % 4 == 0, "attention on CUDA: head_dim ", dim, " of ",
              q.scalar_type(), " must be a multiple of ", IsFlash(q) ? "8 and at most 256" : "4");
}

// [batch, kv_heads, seq, head_dim] -> [batch, heads, seq, head_dim]
at::Tensor RepeatHeads(const at::Tensor& x, int64_t heads) {
  if (x.size(1) == heads) return x;
  const int64_t batch = x.size(0), kv_heads = x.size(1), seq = x.size(2), dim = x.size(3);
  return x.unsqueeze(2).expand({batch, kv_heads, heads / kv_heads, seq, dim}).reshape({batch, heads, seq, dim});
}

// The gradient of RepeatHeads. It lies by sequence, as `grad` does and as Meta says: else operators behind it would copy on CUDA
// that do not in a capture.
at::Tensor SumHeads(const at::Tensor& grad, int64_t kv_heads) {
  const int64_t batch = grad.size(0), heads = grad.size(1), seq = grad.size(2), dim = grad.size(3);
  if (heads == kv_heads) return grad;
  return grad.transpose(1, 2).reshape({batch, seq, kv_heads, heads / kv_heads, dim}).sum(3).transpose(1, 2);
}

TwoTensors AttentionCuda(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, bool causal, double scale) {
  CheckArguments(q, k, v);
  CheckCudaHeads(q);
  at::AutoDispatchBelowADInplaceOrView below;
  if (IsFlash(q)) {
    auto result = at::_scaled_dot_product_flash_attention(q, k, v, 0.0, causal, /*return_debug_mask=*/false, scale);
    return {std::get<0>(result), std::get<1>(result)};
  }
  auto result =
      at::_scaled_dot_product_efficient_attention(q, RepeatHeads(k, q.size(1)), RepeatHeads(v, q.size(1)),
                                                  /*attn_bias=*/std::nullopt, /*compute_log_sumexp=*/true, 0.0, causal, scale);
  return {std::get<0>(result), std::get<1>(result)};
}

// Memory-efficient attention wants room for whole blocks of so many tokens in lse.
constexpr int64_t kLseBlock = 32;

// Without dropout the generator's state is not read: empty tensors stand for it. lse may be one that was merged of several.
ThreeTensors AttentionBackwardCuda(const at::Tensor& grad, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                   const at::Tensor& out, const at::Tensor& lse, bool causal, double scale) {
  at::AutoDispatchBelowADInplaceOrView below;
  const at::Tensor none = at::empty({0}, q.options().dtype(at::kLong));
  if (IsFlash(q)) {
    return at::_scaled_dot_product_flash_attention_backward(grad, q, k, v, out, lse.contiguous(), at::Tensor(), at::Tensor(),
                                                            q.size(2), k.size(2), 0.0, causal, none, none, scale);
  }
  const int64_t kv_heads = k.size(1), padding = (kLseBlock - q.size(2) % kLseBlock) % kLseBlock;
  const at::Tensor padded = lse.size(2) == q.size(2) && padding > 0
                                ? at::constant_pad_nd(lse, {0, padding}, std::numeric_limits<double>::infinity())
                                : lse.contiguous();
  auto [grad_q, grad_k, grad_v, _] = at::_scaled_dot_product_efficient_attention_backward(
      grad, q, RepeatHeads(k, q.size(1)), RepeatHeads(v, q.size(1)), /*attn_bias=*/at::Tensor(), out, padded, none, none, 0.0,
      {true, true, true, false}, causal, scale);
  return {grad_q, SumHeads(grad_k, kv_heads), SumHeads(grad_v, kv_heads)};
}

}  // namespace
}  // namespace legoai::model

TORCH_LIBRARY_IMPL(lego, CPU, m) {
  m.impl("attention", legoai::model::AttentionCpu);
  m.impl("attention_backward", legoai::model::AttentionBackwardCpu);
}
TORCH_LIBRARY_IMPL(lego, CUDA, m) {
  m.impl("attention", legoai::model::AttentionCuda);
  m.impl("attention_backward", legoai::model::AttentionBackwardCuda);
}
TORCH_LIBRARY_IMPL(lego, Meta, m) {
  m.impl("attention", legoai::model::AttentionMeta);
  m.impl("attention_backward", legoai::model::AttentionBackwardMeta);
}
