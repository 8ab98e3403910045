#include "worker/comm/cuda/cuda_functions.h"

#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime.h>

#include <limits>

#include "worker/comm/cuda/device.h"

namespace legoai::comm {

std::string CudaArchitecture(int device) {
  int major = 0, minor = 0;
  if (cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) != cudaSuccess ||
      cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device) != cudaSuccess)
    return "";
  return "sm_" + std::to_string(major) + std::to_string(minor);
}

absl::StatusOr<std::vector<void*>> LoadCudaFunctions(const std::string& cubin, const std::vector<std::string>& names) {
  cudaLibrary_t library = nullptr;
  absl::Status status =
      Check(cudaLibraryLoadData(&library, cubin.data(), nullptr, nullptr, 0, nullptr, nullptr, 0), "loading compiled kernels");
  if (!status.ok()) return status;
  std::vector<void*> functions;
  for (const std::string& name : names) {
    cudaKernel_t kernel = nullptr;
    status = Check(cudaLibraryGetKernel(&kernel, library, name.c_str()), "finding the kernel " + name);
    if (!status.ok()) return status;
    functions.push_back(reinterpret_cast<void*>(kernel));
  }
  return functions;
}

absl::Status LaunchCudaFunction(void* function, int device, int64_t blocks, int threads, void* argument) {
  if (blocks <= 0 || blocks > std::numeric_limits<int32_t>::max())
    return absl::InvalidArgumentError("a kernel of " + std::to_string(blocks) + " blocks cannot be launched");
  try {
    const c10::cuda::CUDAGuard guard(static_cast<c10::DeviceIndex>(device));
    void* arguments[] = {argument};
    const cudaStream_t stream = c10::cuda::getCurrentCUDAStream(static_cast<c10::DeviceIndex>(device)).stream();
    const dim3 grid(static_cast<unsigned>(blocks)), block(static_cast<unsigned>(threads));
    return Check(cudaLaunchKernel(function, grid, block, arguments, /*sharedMem=*/0, stream), "launching a kernel");
  } catch (const std::exception& e) {
    return absl::InternalError(std::string("launching a kernel on GPU ") + std::to_string(device) + ": " + e.what());
  }
}

}  // namespace legoai::comm
