// lego::round_stochastically_ for CUDA tensors.
#include <ATen/core/Tensor.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/library.h>

#include "worker/comm/cuda/rounding.h"
#include "worker/model/rounding_arguments.h"

namespace legoai::model {
namespace {

at::Tensor& RoundCuda(at::Tensor& self, const at::Tensor& value, const at::Tensor& rng, int64_t tensor, int64_t first,
                      int64_t stride) {
  RoundingCall call = CheckRoundingArguments(self, value, rng, tensor, first, stride);
  const c10::cuda::CUDAGuard device(self.device());
  call.value = value.const_data_ptr<float>();
  call.out = static_cast<uint16_t*>(self.mutable_data_ptr());
  call.seed_and_step = rng.const_data_ptr<int64_t>();
  C10_CUDA_CHECK(LaunchRounding(call, c10::cuda::getCurrentCUDAStream().stream()));
  return self;
}

}  // namespace
}  // namespace legoai::model

TORCH_LIBRARY_IMPL(lego, CUDA, m) { m.impl("round_stochastically_", legoai::model::RoundCuda); }
