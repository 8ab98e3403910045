// Shapes of operators, as Meta kernels, where ATen has none in C++ that gives what its CPU kernel does.
#include <ATen/ExpandUtils.h>
#include <ATen/OpMathType.h>
#include <ATen/WrapDimUtils.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/result_type.h>
#include <torch/library.h>

#include <array>
#include <optional>
#include <tuple>
#include <vector>

namespace legoai::sim {
namespace {

using at::IntArrayRef;
using at::Tensor;
using MaybeTensor = std::optional<Tensor>;
using Three = std::tuple<Tensor, Tensor, Tensor>;

// Attention. q, k, v are [batch, heads, seq, head dim] of any strides.

// The output, and the log of the sum of exponentials, [batch, heads, seq], laid out as [batch, seq, heads].
std::tuple<Tensor, Tensor> Flash(const Tensor& q, const Tensor&, const Tensor&, double, bool, const MaybeTensor&,
                                 std::optional<double>) {
  const auto options = q.options().dtype(at::toOpMathType(q.scalar_type()));
  return {at::empty_like(q), at::empty({q.size(0), q.size(2), q.size(1)}, options).transpose(1, 2)};
}

// Gradients are laid out as [batch, seq, heads, head dim].
Three FlashBackward(const Tensor&, const Tensor& q, const Tensor& k, const Tensor& v, const Tensor&, const Tensor&, double, bool,
                    const MaybeTensor&, std::optional<double>) {
  auto gradient = [](const Tensor& x) {
    return at::empty({x.size(0), x.size(2), x.size(1), x.size(3)}, x.options()).transpose(1, 2);
  };
  return {gradient(q), gradient(k), gradient(v)};
}

// Normalizations.

Tensor Contiguous(const Tensor& like) { return at::empty_like(like, at::MemoryFormat::Contiguous); }

// Statistics of low-precision inputs with fp32 weights are kept in fp32.
c10::ScalarType StatisticsType(const Tensor& input, const MaybeTensor& weight) {
  const bool is_mixed = weight && weight->defined() && weight->scalar_type() != input.scalar_type();
  return is_mixed ? at::toOpMathType(input.scalar_type()) : input.scalar_type();
}

// [..., normalized dims] -> the same, and mean and inverse deviation [..., 1 ...].
Three LayerNorm(const Tensor& input, IntArrayRef normalized, const MaybeTensor& weight, const MaybeTensor&, double) {
  auto sizes = input.sizes().vec();
  std::fill(sizes.end() - normalized.size(), sizes.end(), 1);
  const auto options = input.options().dtype(StatisticsType(input, weight));
  return {Contiguous(input), at::empty(sizes, options), at::empty(sizes, options)};
}

Three LayerNormBackward(const Tensor&, const Tensor& input, IntArrayRef, const Tensor&, const Tensor&, const MaybeTensor& weight,
                        const MaybeTensor& bias, std::array<bool, 3> wanted) {
  return {wanted[0] ? Contiguous(input) : Tensor(), wanted[1] && weight ? Contiguous(*weight) : Tensor(),
          wanted[2] && bias ? Contiguous(*bias) : Tensor()};
}

// Convolutions. Input [batch, channels, spatial ...], weight [out, in / groups, kernel ...].

int64_t At(IntArrayRef values, int64_t i) { return values.size() == 1 ? values[0] : values[i]; }

Tensor Convolution(const Tensor& input, const Tensor& weight, const MaybeTensor&, IntArrayRef stride, IntArrayRef padding,
                   IntArrayRef dilation, bool transposed, IntArrayRef, int64_t) {
  TORCH_CHECK(!transposed, "transposed convolution has no shape rule");
  std::vector<int64_t> sizes{input.size(0), weight.size(0)};
  for (int64_t i = 0; i < input.dim() - 2; ++i) {
    const int64_t span = At(dilation, i) * (weight.size(i + 2) - 1) + 1;
    sizes.push_back((input.size(i + 2) + 2 * At(padding, i) - span) / At(stride, i) + 1);
  }
  return at::empty(sizes, input.options());
}

Three ConvolutionBackward(const Tensor&, const Tensor& input, const Tensor& weight, at::OptionalIntArrayRef bias_sizes,
                          IntArrayRef, IntArrayRef, IntArrayRef, bool, IntArrayRef, int64_t, std::array<bool, 3> wanted) {
  return {wanted[0] ? at::empty_like(input) : Tensor(), wanted[1] ? at::empty_like(weight) : Tensor(),
          wanted[2] ? at::empty(*bias_sizes, input.options()) : Tensor()};
}

// Selections.

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
  if (out.sizes() != IntArrayRef(sizes)) out.resize_(sizes);
  return out;
}

Tensor Flip(const Tensor& input, IntArrayRef) { return at::empty_like(input); }
// The CPU kernel concatenates, which keeps an order of dimensions that it takes for channels last.
Tensor Roll(const Tensor& input, IntArrayRef shifts, IntArrayRef dims) {
  if (dims.empty() || input.numel() == 0) return at::empty(input.sizes(), input.options());
  Tensor rolled = input;
  for (size_t i = 0; i < dims.size(); ++i) {
    const int64_t size = input.size(dims[i]), start = ((size - shifts[i]) % size + size) % size;
    rolled = at::cat({rolled.narrow(dims[i], start, size - start), rolled.narrow(dims[i], 0, start)}, dims[i]);
  }
  return rolled;
}

// Reductions.

// Integers are multiplied as int64.
Tensor Product(const Tensor& input, std::optional<at::ScalarType> dtype) {
  const auto natural = at::isIntegralType(input.scalar_type(), /*includeBool=*/true) ? at::kLong : input.scalar_type();
  return at::empty({}, input.options().dtype(dtype.value_or(natural)));
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, Meta, m) {
  m.impl("_scaled_dot_product_flash_attention_for_cpu", Flash);
  m.impl("_scaled_dot_product_flash_attention_for_cpu_backward", FlashBackward);
  m.impl("native_layer_norm", LayerNorm);
  m.impl("native_layer_norm_backward", LayerNormBackward);
  m.impl("convolution", Convolution);
  m.impl("convolution_backward", ConvolutionBackward);
  m.impl("index_select", IndexSelect);
  m.impl("embedding_dense_backward", EmbeddingBackward);
  m.impl("where.self", Where);
  m.impl("where.self_out", WhereOut);
  m.impl("flip", Flip);
  m.impl("roll", Roll);
  m.impl("prod", Product);
}

}  // namespace legoai::sim
