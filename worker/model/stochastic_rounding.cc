// Kernels of lego::round_stochastically_ on CPU and Meta; the CUDA plugin has the GPU's.
#include "worker/model/stochastic_rounding.h"

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <torch/library.h>

#include <algorithm>

#include "worker/model/rounding_arguments.h"

namespace legoai::model {
namespace {

constexpr int kLanes = 16;
constexpr int64_t kGrain = 32768;  // elements worth a thread

at::Tensor& RoundMeta(at::Tensor& self, const at::Tensor& value, const at::Tensor& rng, int64_t tensor, int64_t first,
                      int64_t stride) {
  (void)CheckRoundingArguments(self, value, rng, tensor, first, stride);
  return self;
}

at::Tensor& RoundCpu(at::Tensor& self, const at::Tensor& value, const at::Tensor& rng, int64_t tensor, int64_t first,
                     int64_t stride) {
  RoundingCall call = CheckRoundingArguments(self, value, rng, tensor, first, stride);
  if (call.Blocks() == 0) return self;
  call.value = value.const_data_ptr<float>();
  call.out = reinterpret_cast<uint16_t*>(self.mutable_data_ptr<at::BFloat16>());
  call.seed_and_step = rng.const_data_ptr<int64_t>();
  const int64_t steps = (call.BlocksOfRow() + kLanes - 1) / kLanes;  // of a row
  at::parallel_for(0, call.rows * steps, kGrain / (4 * kLanes), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) RoundBlocks<kLanes>(call, i / steps, i % steps * kLanes);
  });
  return self;
}

}  // namespace
}  // namespace legoai::model

TORCH_LIBRARY_FRAGMENT(lego, m) {
  m.def("round_stochastically_(Tensor(a!) self, Tensor value, Tensor rng, int tensor, int first, int stride) -> Tensor(a!)");
}

TORCH_LIBRARY_IMPL(lego, Autograd, m) { m.impl("round_stochastically_", torch::CppFunction::makeFallthrough()); }
TORCH_LIBRARY_IMPL(lego, CPU, m) { m.impl("round_stochastically_", legoai::model::RoundCpu); }
TORCH_LIBRARY_IMPL(lego, Meta, m) { m.impl("round_stochastically_", legoai::model::RoundMeta); }
