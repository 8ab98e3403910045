#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <cuda_runtime.h>
#include <dlfcn.h>
#include <nccl.h>

#include <map>
#include <string>

#include "worker/comm/cuda/cuda_functions.h"
#include "worker/comm/cuda/cuda_streams.h"
#include "worker/comm/cuda/device.h"
#include "worker/comm/cuda/nccl_communicator.h"
#include "worker/comm/cuda/symmetric_communicator.h"
#include "worker/comm/cuda_plugin.h"

namespace legoai::comm {
namespace {

using c10::CachingAllocator::StatType;

absl::Status SelectDevice(int device) {
  try {
    c10::cuda::set_device(static_cast<c10::DeviceIndex>(device));
    return absl::OkStatus();
  } catch (const std::exception& e) {
    return ToStatus("selecting GPU " + std::to_string(device), e);
  }
}

int64_t PeakAllocatedBytes(int device) {
  const auto stats = c10::cuda::CUDACachingAllocator::getDeviceStats(static_cast<c10::DeviceIndex>(device));
  return stats.requested_bytes[static_cast<size_t>(StatType::AGGREGATE)].peak;
}

// Of numbers like 13020 with their parts a thousand and ten apart (CUDA), or 91002 with ten thousand and a hundred (NCCL, cuDNN).
std::string Dotted(int64_t version, int64_t major, int64_t minor) {
  return std::to_string(version / major) + "." + std::to_string(version % major / minor) + "." + std::to_string(version % minor);
}

// torch's own copies, which came into the process with libtorch_cuda: we do not link them.
std::string CublasVersion() {
  using Get = int (*)(int property, int* value);  // of libraryPropertyType: major, minor, patch
  const auto get = reinterpret_cast<Get>(dlsym(RTLD_DEFAULT, "cublasGetProperty"));
  int parts[3] = {};
  for (int i = 0; i < 3; ++i) {
    if (get == nullptr || get(i, &parts[i]) != 0) return "";
  }
  return std::to_string(parts[0]) + "." + std::to_string(parts[1]) + "." + std::to_string(parts[2]);
}

std::string CudnnVersion() {
  const auto get = reinterpret_cast<size_t (*)()>(dlsym(RTLD_DEFAULT, "cudnnGetVersion"));
  return get == nullptr ? "" : Dotted(static_cast<int64_t>(get()), 10000, 100);
}

std::map<std::string, std::string> DescribeCuda(int device) {
  std::map<std::string, std::string> facts;
  cudaDeviceProp properties;
  if (cudaGetDeviceProperties(&properties, device) == cudaSuccess) facts["card"] = properties.name;
  int version = 0;
  if (cudaRuntimeGetVersion(&version) == cudaSuccess) facts["cuda"] = Dotted(version, 1000, 10);
  if (ncclGetVersion(&version) == ncclSuccess) facts["nccl"] = Dotted(version, 10000, 100);
  if (const std::string cublas = CublasVersion(); !cublas.empty()) facts["cublas"] = cublas;
  if (const std::string cudnn = CudnnVersion(); !cudnn.empty()) facts["cudnn"] = cudnn;
  return facts;
}

}  // namespace
}  // namespace legoai::comm

extern "C" const legoai::comm::CudaPlugin* legoai_cuda_plugin() {
  using namespace legoai::comm;
  static const CudaPlugin plugin{
      .devices = c10::cuda::device_count(),
      .select_device = SelectDevice,
      .make_streams = MakeCudaStreams,
      .make_nccl_factory = MakeNcclFactory,
      .make_symmetric_factory = MakeSymmetricFactory,
      .peak_allocated_bytes = PeakAllocatedBytes,
      .device_of_uuid = DeviceOfUuid,
      .make_timer = MakeCudaTimer,
      .make_clock = MakeCudaClock,
      .describe = DescribeCuda,
      .architecture = CudaArchitecture,
      .load_functions = LoadCudaFunctions,
      .launch_function = LaunchCudaFunction,
  };
  return &plugin;
}
