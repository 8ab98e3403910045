// For tests: whether two tensors on the CPU are the same, bit by bit, so that NaN equals itself and 0 is not -0.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstring>

namespace legoai::sim::testing {

// Of the same sizes, dtype and values; strides do not matter.
inline bool SameBits(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor x = a.contiguous(), y = b.contiguous();
  return x.sizes() == y.sizes() && x.dtype() == y.dtype() &&
         (x.numel() == 0 || std::memcmp(x.const_data_ptr(), y.const_data_ptr(), x.nbytes()) == 0);
}

}  // namespace legoai::sim::testing
