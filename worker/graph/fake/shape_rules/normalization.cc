// Shapes of normalizations, as Meta kernels: ATen has them in Python only.
#include <ATen/OpMathType.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <torch/library.h>

#include <array>
#include <optional>
#include <tuple>

namespace legoai::sim {
namespace {

using at::Tensor;
using MaybeTensor = std::optional<Tensor>;
using Three = std::tuple<Tensor, Tensor, Tensor>;

Tensor Contiguous(const Tensor& like) { return at::empty_like(like, at::MemoryFormat::Contiguous); }

// Statistics of low-precision inputs with fp32 weights are kept in fp32.
c10::ScalarType StatisticsType(const Tensor& input, const MaybeTensor& weight) {
  const bool is_mixed = weight && weight->defined() && weight->scalar_type() != input.scalar_type();
  return is_mixed ? at::toOpMathType(input.scalar_type()) : input.scalar_type();
}

// [..., normalized dims] -> the same, and mean and inverse deviation [..., 1 ...].
Three LayerNorm(const Tensor& input, at::IntArrayRef normalized, const MaybeTensor& weight, const MaybeTensor&, double) {
  auto sizes = input.sizes().vec();
  std::fill(sizes.end() - normalized.size(), sizes.end(), 1);
  const auto options = input.options().dtype(StatisticsType(input, weight));
  return {Contiguous(input), at::empty(sizes, options), at::empty(sizes, options)};
}

Three LayerNormBackward(const Tensor&, const Tensor& input, at::IntArrayRef, const Tensor&, const Tensor&,
                        const MaybeTensor& weight, const MaybeTensor& bias, std::array<bool, 3> wanted) {
  return {wanted[0] ? Contiguous(input) : Tensor(), wanted[1] && weight ? Contiguous(*weight) : Tensor(),
          wanted[2] && bias ? Contiguous(*bias) : Tensor()};
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, Meta, m) {
  m.impl("native_layer_norm", LayerNorm);
  m.impl("native_layer_norm_backward", LayerNormBackward);
}

}  // namespace legoai::sim
