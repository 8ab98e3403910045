// A CUDA plugin of two GPUs that are not there, GPU-x and GPU-y: enough to open a Machine. Which one was selected it tells as the
// peak of memory.
#include <cstring>

#include "worker/comm/cuda_plugin.h"

namespace legoai::comm {
namespace {

int selected = -1;

absl::Status SelectDevice(int device) {
  selected = device;
  return absl::OkStatus();
}

int64_t PeakAllocatedBytes(int device) { return device == selected ? selected : -1; }

int DeviceOfUuid(const char* uuid) {
  if (std::strcmp(uuid, "GPU-x") == 0) return 0;
  return std::strcmp(uuid, "GPU-y") == 0 ? 1 : -1;
}

}  // namespace
}  // namespace legoai::comm

extern "C" const legoai::comm::CudaPlugin* legoai_cuda_plugin() {
  using namespace legoai::comm;
  static const CudaPlugin plugin{
      .devices = 2, .select_device = SelectDevice, .peak_allocated_bytes = PeakAllocatedBytes, .device_of_uuid = DeviceOfUuid};
  return &plugin;
}
