#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <cuda_runtime.h>

#include <string>

#include "worker/comm/cuda/cuda_description.h"
#include "worker/comm/cuda/cuda_streams.h"
#include "worker/comm/cuda/cuda_timer.h"
#include "worker/comm/cuda/cuda_uuid.h"
#include "worker/comm/cuda/nccl_communicator.h"
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

int DeviceOfUuid(const char* uuid) {
  for (int device = 0; device < c10::cuda::device_count(); ++device) {
    cudaDeviceProp properties;
    if (cudaGetDeviceProperties(&properties, device) == cudaSuccess && UuidText(properties.uuid) == uuid) return device;
  }
  return -1;
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
      .peak_allocated_bytes = PeakAllocatedBytes,
      .device_of_uuid = DeviceOfUuid,
      .make_timer = MakeCudaTimer,
      .describe = DescribeCuda,
  };
  return &plugin;
}
