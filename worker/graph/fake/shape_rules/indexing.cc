// Shapes of selections, as Meta kernels.
#include <ATen/ExpandUtils.h>
#include <ATen/WrapDimUtils.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/result_type.h>
#include <torch/library.h>

namespace legoai::sim {
namespace {

using at::Tensor;

Tensor IndexSelect(const Tensor& input, int64_t dim, const Tensor& index) {
  auto sizes = input.sizes().vec();
  if (!sizes.empty()) sizes[at::maybe_wrap_dim(dim, input.dim())] = index.numel();
  return at::empty(sizes, input.options());
}

// gradient: [..., dim] -> [rows, dim]
Tensor EmbeddingBackward(const Tensor& gradient, const Tensor&, int64_t rows, int64_t, bool) {
  return at::empty({rows, gradient.size(-1)}, gradient.options());
}

std::vector<int64_t> BroadcastSizes(const Tensor& condition, const Tensor& a, const Tensor& b) {
  return at::infer_size(condition.sizes(), at::infer_size(a.sizes(), b.sizes()));
}
Tensor Where(const Tensor& condition, const Tensor& a, const Tensor& b) {
  return at::empty(BroadcastSizes(condition, a, b), a.options().dtype(at::result_type(a, b)));
}
Tensor& WhereOut(const Tensor& condition, const Tensor& a, const Tensor& b, Tensor& out) {
  const auto sizes = BroadcastSizes(condition, a, b);
  if (out.sizes() != at::IntArrayRef(sizes)) out.resize_(sizes);
  return out;
}

Tensor Flip(const Tensor& input, at::IntArrayRef) { return at::empty_like(input); }
// The CPU kernel concatenates.
Tensor Roll(const Tensor& input, at::IntArrayRef, at::IntArrayRef) { return at::empty(input.sizes(), input.options()); }

}  // namespace

TORCH_LIBRARY_IMPL(aten, Meta, m) {
  m.impl("index_select", IndexSelect);
  m.impl("embedding_dense_backward", EmbeddingBackward);
  m.impl("where.self", Where);
  m.impl("where.self_out", WhereOut);
  m.impl("flip", Flip);
  m.impl("roll", Roll);
}

}  // namespace legoai::sim
