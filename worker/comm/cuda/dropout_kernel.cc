// lego::dropout for CUDA tensors.
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_like.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/library.h>

#include "worker/comm/cuda/dropout.h"
#include "worker/model/dropout_arguments.h"

namespace legoai::model {
namespace {

template <class T>
void Run(const at::Tensor& x, const at::Tensor& rng, const at::Tensor& samples, int64_t site, double p,
         const DropoutRuns& runs, const at::Tensor& out) {
  DropoutCall<T> call;
  call.x = static_cast<const T*>(x.const_data_ptr());
  call.out = static_cast<T*>(out.mutable_data_ptr());
  call.seed_and_step = rng.const_data_ptr<int64_t>();
  call.samples = samples.const_data_ptr<int64_t>();
  call.batch = x.size(0);
  call.size = call.batch == 0 ? 0 : x.numel() / call.batch;
  call.site = site;
  call.factor = FactorOf(p);
  call.runs = runs;
  C10_CUDA_CHECK(LaunchDropout(call, c10::cuda::getCurrentCUDAStream().stream()));
}

at::Tensor DropoutCuda(const at::Tensor& x, const at::Tensor& rng, const at::Tensor& samples, int64_t site, double p,
                       int64_t first, at::IntArrayRef runs) {
  const DropoutRuns positions = CheckDropoutArguments(x, rng, samples, site, p, first, runs);
  const c10::cuda::CUDAGuard device(x.device());
  const at::Tensor out = at::empty_like(x);
  if (x.scalar_type() == at::kFloat) {
    Run<float>(x, rng, samples, site, p, positions, out);
  } else if (x.scalar_type() == at::kHalf) {
    Run<__half>(x, rng, samples, site, p, positions, out);
  } else {
    Run<__nv_bfloat16>(x, rng, samples, site, p, positions, out);
  }
  return out;
}

}  // namespace
}  // namespace legoai::model

TORCH_LIBRARY_IMPL(lego, CUDA, m) { m.impl("dropout", legoai::model::DropoutCuda); }
