#include <algorithm>

#include "worker/comm/cuda/rounding.h"

namespace legoai::model {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kMostGroups = 65535;  // of threads; each goes on to further blocks of the call

__global__ void Round(RoundingCall call) {
  const int64_t threads = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < call.Blocks(); i += threads) {
    RoundBlocks<1>(call, i / call.BlocksOfRow(), i % call.BlocksOfRow());
  }
}

}  // namespace

cudaError_t LaunchRounding(const RoundingCall& call, cudaStream_t stream) {
  if (call.Blocks() == 0) return cudaSuccess;
  const int64_t groups = std::min((call.Blocks() + kThreads - 1) / kThreads, kMostGroups);
  Round<<<static_cast<unsigned>(groups), kThreads, 0, stream>>>(call);
  return cudaGetLastError();
}

}  // namespace legoai::model
