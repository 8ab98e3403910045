#include "worker/comm/cuda/device.h"

#include <atomic>
#include <chrono>
#include <cstdio>
#include <future>
#include <thread>
#include <utility>

#include "proto/status.h"

namespace legoai::comm {
namespace {

constexpr std::chrono::seconds kEnd{10}, kEndOfOthers{1};

}  // namespace

absl::Status Check(cudaError_t error, std::string_view what) {
  if (error == cudaSuccess) return absl::OkStatus();
  (void)cudaGetLastError();  // or the next check of a kernel would find it
  return absl::UnavailableError(std::string(what) + " failed: " + cudaGetErrorString(error));
}

std::string UuidText(const cudaUUID_t& uuid) {
  std::string text = "GPU-";
  for (size_t i = 0; i < sizeof(uuid.bytes); ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    char digits[3];
    std::snprintf(digits, sizeof(digits), "%02x", static_cast<unsigned>(static_cast<unsigned char>(uuid.bytes[i])));
    text += digits;
  }
  return text;
}

int DeviceOfUuid(const char* uuid) {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess) return -1;
  for (int device = 0; device < devices; ++device) {
    cudaDeviceProp properties;
    if (cudaGetDeviceProperties(&properties, device) == cudaSuccess && UuidText(properties.uuid) == uuid) return device;
  }
  return -1;
}

absl::StatusOr<RankGpu> OwnGpu() {
  int device = 0;
  cudaDeviceProp properties{};
  RETURN_IF_ERROR(Check(cudaGetDevice(&device), "asking for this rank's GPU"));
  RETURN_IF_ERROR(Check(cudaGetDeviceProperties(&properties, device), "asking for this rank's GPU"));
  return RankGpu{UuidText(properties.uuid), "GPU " + std::to_string(device) + ", " + properties.name};
}

void EndInTime(int device, std::function<void()> end) {
  static std::atomic<bool> waited_in_vain{false};
  std::promise<void> done;
  const std::future<void> ended = done.get_future();
  std::thread([device, end = std::move(end), done = std::move(done)]() mutable {
    cudaSetDevice(device);
    end();
    end = nullptr;  // what it holds ends here as well, before anybody is told
    done.set_value();
  }).detach();
  const std::chrono::seconds limit = waited_in_vain ? kEndOfOthers : kEnd;
  if (ended.wait_for(limit) != std::future_status::ready) waited_in_vain = true;
}

}  // namespace legoai::comm
