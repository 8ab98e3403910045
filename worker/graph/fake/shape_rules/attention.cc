// Shapes of ATen's attention on the CPU, as Meta kernels. q, k, v are [batch, heads, seq, head dim] of any strides.
#include <ATen/OpMathType.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <torch/library.h>

#include <optional>
#include <tuple>

namespace legoai::sim {
namespace {

using at::Tensor;
using MaybeTensor = std::optional<Tensor>;

// The output, and the log of the sum of exponentials, [batch, heads, seq], laid out as [batch, seq, heads].
std::tuple<Tensor, Tensor> Flash(const Tensor& q, const Tensor&, const Tensor&, double, bool, const MaybeTensor&,
                                 std::optional<double>) {
  const auto options = q.options().dtype(at::toOpMathType(q.scalar_type()));
  return {at::empty_like(q), at::empty({q.size(0), q.size(2), q.size(1)}, options).transpose(1, 2)};
}

// Gradients are laid out as [batch, seq, heads, head dim].
std::tuple<Tensor, Tensor, Tensor> FlashBackward(const Tensor&, const Tensor& q, const Tensor& k, const Tensor& v, const Tensor&,
                                                 const Tensor&, double, bool, const MaybeTensor&, std::optional<double>) {
  auto gradient = [](const Tensor& x) {
    return at::empty({x.size(0), x.size(2), x.size(1), x.size(3)}, x.options()).transpose(1, 2);
  };
  return {gradient(q), gradient(k), gradient(v)};
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, Meta, m) {
  m.impl("_scaled_dot_product_flash_attention_for_cpu", Flash);
  m.impl("_scaled_dot_product_flash_attention_for_cpu_backward", FlashBackward);
}

}  // namespace legoai::sim
