// Shapes of reductions, as Meta kernels.
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include <optional>

namespace legoai::sim {
namespace {

// Integers are multiplied as int64.
at::Tensor Product(const at::Tensor& input, std::optional<at::ScalarType> dtype) {
  const auto natural = at::isIntegralType(input.scalar_type(), /*includeBool=*/true) ? at::kLong : input.scalar_type();
  return at::empty({}, input.options().dtype(dtype.value_or(natural)));
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, Meta, m) { m.impl("prod", Product); }

}  // namespace legoai::sim
