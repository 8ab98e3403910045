// Dropout on the GPU; what a thread computes is in worker/model/philox.h.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include "worker/model/philox.h"

namespace legoai::model {

// Enqueues the call on `stream`; its memory is the device's.
cudaError_t LaunchDropout(const DropoutCall<float>& call, cudaStream_t stream);
cudaError_t LaunchDropout(const DropoutCall<__nv_bfloat16>& call, cudaStream_t stream);
cudaError_t LaunchDropout(const DropoutCall<__half>& call, cudaStream_t stream);

}  // namespace legoai::model
