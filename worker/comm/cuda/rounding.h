// Stochastic rounding on the GPU; what a thread computes is in worker/model/stochastic_rounding.h.
#pragma once

#include <cuda_runtime.h>

#include "worker/model/stochastic_rounding.h"

namespace legoai::model {

// Enqueues the call on `stream`; its memory is the device's.
cudaError_t LaunchRounding(const RoundingCall& call, cudaStream_t stream);

}  // namespace legoai::model
