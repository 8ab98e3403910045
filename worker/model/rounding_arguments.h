// What the arguments of lego::round_stochastically_ must be, on every device.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "worker/model/stochastic_rounding.h"

namespace legoai::model {

// The call, but for its pointers. Errors: c10::Error that names the argument.
inline RoundingCall CheckRoundingArguments(const at::Tensor& self, const at::Tensor& value, const at::Tensor& rng, int64_t tensor,
                                           int64_t first, int64_t stride) {
  TORCH_CHECK(self.scalar_type() == at::kBFloat16 && value.scalar_type() == at::kFloat, "round_stochastically_: from ",
              value.scalar_type(), " to ", self.scalar_type(), "; only float32 is rounded, to bfloat16");
  TORCH_CHECK(self.sizes() == value.sizes() && (self.dim() == 1 || self.dim() == 2), "round_stochastically_: ", value.sizes(),
              " to ", self.sizes(), "; they must be equal, of one or two dimensions");
  TORCH_CHECK(rng.scalar_type() == at::kLong && rng.numel() == 2, "round_stochastically_: rng must be int64 [2]");
  TORCH_CHECK(value.device() == self.device() && rng.device() == self.device(), "round_stochastically_: value is on ",
              value.device(), ", rng on ", rng.device(), ", self on ", self.device());
  TORCH_CHECK(self.is_contiguous() && value.is_contiguous() && rng.is_contiguous(),
              "round_stochastically_: arguments must be contiguous");
  RoundingCall call;
  call.rows = self.dim() == 2 ? self.size(0) : 1;
  call.width = self.size(-1);
  call.tensor = static_cast<uint64_t>(tensor);
  call.first = first;
  call.stride = stride;
  TORCH_CHECK(first >= 0 && stride >= 0 && (call.rows == 0 || call.FirstOf(call.rows - 1) + call.width <= int64_t{1} << 34),
              "round_stochastically_: numbers from ", first, " by ", stride, " of ", self.sizes(), " are not in [0, 2^34]");
  return call;
}

}  // namespace legoai::model
