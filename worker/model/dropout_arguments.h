// Checks the arguments of lego::dropout, on every device.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "worker/model/philox.h"

namespace legoai::model {

// Returns the positions of x. Errors: c10::Error naming the argument.
inline DropoutRuns CheckDropoutArguments(const at::Tensor& x, const at::Tensor& rng, const at::Tensor& samples, int64_t site,
                                         double p, int64_t first, at::IntArrayRef runs) {
  TORCH_CHECK(x.dim() >= 1 && samples.dim() == 1 && samples.size(0) == x.size(0), "dropout: ", samples.sizes(), " samples for x ",
              x.sizes());
  TORCH_CHECK(x.scalar_type() == at::kFloat || x.scalar_type() == at::kBFloat16 || x.scalar_type() == at::kHalf,
              "dropout: dtype ", x.scalar_type(), "; use float32, bfloat16 or float16");
  TORCH_CHECK(rng.scalar_type() == at::kLong && rng.numel() == 2 && samples.scalar_type() == at::kLong,
              "dropout: rng must be int64 [2] and samples int64");
  TORCH_CHECK(rng.device() == x.device() && samples.device() == x.device(), "dropout: rng is on ", rng.device(), ", samples on ",
              samples.device(), ", x on ", x.device());
  TORCH_CHECK(x.is_contiguous() && rng.is_contiguous() && samples.is_contiguous(), "dropout: arguments must be contiguous");
  TORCH_CHECK(p >= 0 && p < 1, "dropout: probability ", p, " is not in [0, 1)");
  TORCH_CHECK(first >= 0, "dropout: the first position is ", first);
  TORCH_CHECK(site >= 0 && site < 65536, "dropout: site ", site, " is not in [0, 65536)");
  if (runs.empty()) return {.first = first};
  const int64_t size = x.size(0) == 0 ? 0 : x.numel() / x.size(0);
  TORCH_CHECK(runs.size() == 4 && runs[0] > 0 && runs[1] > 0 && runs[2] >= 0 && runs[3] >= 0 && size % runs[0] == 0,
              "dropout: runs ", runs, " must be length, count, stride and outer stride, and the length must divide ", size);
  return {first, runs[0], runs[1], runs[2], runs[3]};
}

}  // namespace legoai::model
