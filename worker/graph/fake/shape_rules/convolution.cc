// Shapes of convolutions, as Meta kernels. Input [batch, channels, spatial ...], weight [out, in / groups, kernel ...].
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <torch/library.h>

#include <array>
#include <optional>
#include <tuple>
#include <vector>

namespace legoai::sim {
namespace {

using at::IntArrayRef;
using at::Tensor;

int64_t At(IntArrayRef values, int64_t i) { return values.size() == 1 ? values[0] : values[i]; }

Tensor Convolution(const Tensor& input, const Tensor& weight, const std::optional<Tensor>&, IntArrayRef stride,
                   IntArrayRef padding, IntArrayRef dilation, bool transposed, IntArrayRef, int64_t) {
  TORCH_CHECK(!transposed, "transposed convolution has no shape rule");
  std::vector<int64_t> sizes{input.size(0), weight.size(0)};
  for (int64_t i = 0; i < input.dim() - 2; ++i) {
    const int64_t span = At(dilation, i) * (weight.size(i + 2) - 1) + 1;
    sizes.push_back((input.size(i + 2) + 2 * At(padding, i) - span) / At(stride, i) + 1);
  }
  return at::empty(sizes, input.options());
}

std::tuple<Tensor, Tensor, Tensor> ConvolutionBackward(const Tensor&, const Tensor& input, const Tensor& weight,
                                                       at::OptionalIntArrayRef bias_sizes, IntArrayRef, IntArrayRef, IntArrayRef,
                                                       bool, IntArrayRef, int64_t, std::array<bool, 3> wanted) {
  return {wanted[0] ? at::empty_like(input) : Tensor(), wanted[1] ? at::empty_like(weight) : Tensor(),
          wanted[2] ? at::empty(*bias_sizes, input.options()) : Tensor()};
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, Meta, m) {
  m.impl("convolution", Convolution);
  m.impl("convolution_backward", ConvolutionBackward);
}

}  // namespace legoai::sim
