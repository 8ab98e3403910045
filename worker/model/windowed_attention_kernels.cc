// Kernels of lego::attention.window on CPU: ATen's flash attention, a block of queries at a time with the keys that any of them
// sees, so that time grows with the window and not with the sequence. What simulator/memory/workspace.cc says of their memory
// follows from here. CUDA's refuse: ATen's FlashAttention has windows, but nothing here has been tried on a card.
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <torch/library.h>

#include <algorithm>
#include <limits>
#include <tuple>

namespace legoai::model {
namespace {

using TwoTensors = std::tuple<at::Tensor, at::Tensor>;
using ThreeTensors = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

// Queries [query, query + queries) see keys [key, key + keys), each the last `window` of them up to its own.
struct Block {
  int64_t query, queries, key, keys;
};

// A block of n queries computes n + window - 1 keys for each, of which a query sees `window`: few queries waste little, and many
// fill a call.
int64_t QueriesOfBlock(int64_t window) { return std::max<int64_t>(64, window / 4); }

template <class Visit>
void ForEachBlock(int64_t seq, int64_t window, Visit visit) {
  for (int64_t query = 0; query < seq; query += QueriesOfBlock(window)) {
    const int64_t queries = std::min(QueriesOfBlock(window), seq - query), key = std::max<int64_t>(0, query - window + 1);
    visit(Block{query, queries, key, query + queries - key});
  }
}

at::Tensor Queries(const at::Tensor& x, const Block& block) { return x.narrow(2, block.query, block.queries); }
at::Tensor Keys(const at::Tensor& x, const Block& block) { return x.narrow(2, block.key, block.keys); }

// [queries, keys], fp32: 0 where a query sees a key, -inf elsewhere.
at::Tensor MaskOf(const Block& block, int64_t window) {
  at::Tensor mask = at::empty({block.queries, block.keys}, at::TensorOptions().dtype(at::kFloat));
  float* row = mask.mutable_data_ptr<float>();
  for (int64_t i = 0; i < block.queries; ++i, row += block.keys) {
    const int64_t end = block.query + i + 1 - block.key, begin = std::max<int64_t>(0, end - window);
    std::fill(row, row + block.keys, -std::numeric_limits<float>::infinity());
    std::fill(row + begin, row + end, 0.0f);
  }
  return mask;
}

void CheckArguments(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, int64_t window) {
  TORCH_CHECK(q.dim() == 4 && k.dim() == 4 && v.sizes() == k.sizes(), "attention.window: q ", q.sizes(), ", k ", k.sizes(),
              ", v ", v.sizes(), " must be [batch, heads, seq, head_dim]");
  TORCH_CHECK(q.size(0) == k.size(0) && q.size(2) == k.size(2) && q.size(3) == k.size(3) && k.size(1) > 0 &&
                  q.size(1) % k.size(1) == 0,
              "attention.window: q ", q.sizes(), " does not fit k ", k.sizes());
  TORCH_CHECK(q.scalar_type() == k.scalar_type() && q.scalar_type() == v.scalar_type(), "attention.window: dtypes ",
              q.scalar_type(), ", ", k.scalar_type(), ", ", v.scalar_type(), " differ");
  TORCH_CHECK(q.stride(3) == 1 && k.stride(3) == 1 && v.stride(3) == 1, "attention.window: the last stride must be 1");
  TORCH_CHECK(window >= 1, "attention.window: a window of ", window, " positions");
}

// [batch, heads, seq, head_dim] that lies as [batch, seq, heads, head_dim].
at::Tensor EmptyBySequence(const at::Tensor& like, at::ScalarType dtype) {
  return at::empty({like.size(0), like.size(2), like.size(1), like.size(3)}, like.options().dtype(dtype)).transpose(1, 2);
}

TwoTensors WindowMeta(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, int64_t window, double scale) {
  CheckArguments(q, k, v, window);
  return {at::empty_like(q.transpose(1, 2)).transpose(1, 2),
          at::empty({q.size(0), q.size(2), q.size(1)}, q.options().dtype(at::kFloat)).transpose(1, 2)};
}

ThreeTensors WindowBackwardMeta(const at::Tensor& grad, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                const at::Tensor& out, const at::Tensor& lse, int64_t window, double scale) {
  CheckArguments(q, k, v, window);
  TORCH_CHECK(grad.sizes() == q.sizes(), "attention_backward.window: the gradient ", grad.sizes(), " must be like q ", q.sizes());
  return {EmptyBySequence(q, q.scalar_type()), EmptyBySequence(k, k.scalar_type()), EmptyBySequence(v, v.scalar_type())};
}

TwoTensors WindowCpu(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, int64_t window, double scale) {
  auto [out, lse] = WindowMeta(q, k, v, window, scale);
  at::AutoDispatchBelowADInplaceOrView below;
  ForEachBlock(q.size(2), window, [&, &out = out, &lse = lse](const Block& block) {
    const auto [part, part_lse] = at::_scaled_dot_product_flash_attention_for_cpu(
        Queries(q, block), Keys(k, block), Keys(v, block), 0.0, /*is_causal=*/false, MaskOf(block, window), scale);
    Queries(out, block).copy_(part);
    Queries(lse, block).copy_(part_lse);
  });
  return {out, lse};
}

// A key is in several blocks: its gradients are summed in fp32.
ThreeTensors WindowBackwardCpu(const at::Tensor& grad, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                               const at::Tensor& out, const at::Tensor& lse, int64_t window, double scale) {
  auto [grad_q, grad_k, grad_v] = WindowBackwardMeta(grad, q, k, v, out, lse, window, scale);
  at::AutoDispatchBelowADInplaceOrView below;
  const bool is_sum = k.scalar_type() == at::kFloat;
  const at::Tensor sum_k = (is_sum ? grad_k : EmptyBySequence(k, at::kFloat)).zero_();
  const at::Tensor sum_v = (is_sum ? grad_v : EmptyBySequence(v, at::kFloat)).zero_();
  ForEachBlock(q.size(2), window, [&, &grad_q = grad_q](const Block& block) {
    const auto [part_q, part_k, part_v] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
        Queries(grad, block), Queries(q, block), Keys(k, block), Keys(v, block), Queries(out, block), Queries(lse, block), 0.0,
        /*is_causal=*/false, MaskOf(block, window), scale);
    Queries(grad_q, block).copy_(part_q);
    Keys(sum_k, block).add_(part_k);
    Keys(sum_v, block).add_(part_v);
  });
  if (!is_sum) {
    grad_k.copy_(sum_k);
    grad_v.copy_(sum_v);
  }
  return {grad_q, grad_k, grad_v};
}

constexpr char kNotOnCuda[] =
    "attention with a sliding window shorter than the sequence is not built for CUDA: train on sequences of at most the model's "
    "sliding_window, or on CPU";

TwoTensors WindowCuda(const at::Tensor&, const at::Tensor&, const at::Tensor&, int64_t window, double) {
  TORCH_CHECK(false, kNotOnCuda, " (window ", window, ")");
}
ThreeTensors WindowBackwardCuda(const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&,
                                const at::Tensor&, int64_t window, double) {
  TORCH_CHECK(false, kNotOnCuda, " (window ", window, ")");
}

}  // namespace
}  // namespace legoai::model

TORCH_LIBRARY_IMPL(lego, CPU, m) {
  m.impl("attention.window", legoai::model::WindowCpu);
  m.impl("attention_backward.window", legoai::model::WindowBackwardCpu);
}
TORCH_LIBRARY_IMPL(lego, CUDA, m) {
  m.impl("attention.window", legoai::model::WindowCuda);
  m.impl("attention_backward.window", legoai::model::WindowBackwardCuda);
}
TORCH_LIBRARY_IMPL(lego, Meta, m) {
  m.impl("attention.window", legoai::model::WindowMeta);
  m.impl("attention_backward.window", legoai::model::WindowBackwardMeta);
}
