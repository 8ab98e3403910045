#include <algorithm>

#include "worker/comm/cuda/dropout.h"

namespace legoai::model {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kMostGroups = 65535;  // of threads; each goes on to further blocks of the call

template <class T>
__global__ void DropBlocks(DropoutCall<T> call) {
  const int64_t threads = int64_t{gridDim.x} * blockDim.x;
  for (int64_t block = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; block < call.Blocks(); block += threads) {
    DropBlock(call, block);
  }
}

template <class T>
cudaError_t Launch(const DropoutCall<T>& call, cudaStream_t stream) {
  if (call.Blocks() == 0) return cudaSuccess;
  const int64_t groups = std::min((call.Blocks() + kThreads - 1) / kThreads, kMostGroups);
  DropBlocks<<<static_cast<unsigned>(groups), kThreads, 0, stream>>>(call);
  return cudaGetLastError();
}

}  // namespace

cudaError_t LaunchDropout(const DropoutCall<float>& call, cudaStream_t stream) { return Launch(call, stream); }
cudaError_t LaunchDropout(const DropoutCall<__nv_bfloat16>& call, cudaStream_t stream) { return Launch(call, stream); }
cudaError_t LaunchDropout(const DropoutCall<__half>& call, cudaStream_t stream) { return Launch(call, stream); }

}  // namespace legoai::model
