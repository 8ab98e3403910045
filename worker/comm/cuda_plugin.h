// CUDA and NCCL in a shared library that is opened at run time, so that the same binaries start on a machine without a GPU.
//
// The plugin links libtorch_cuda, so it is loaded before the first ATen call. It is never unloaded.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/comm/rendezvous.h"
#include "worker/comm/runtime.h"
#include "worker/comm/step_timeline.h"
#include "worker/comm/streams.h"

namespace legoai::comm {

// The entry points of liblegoai_cuda.so. Functions never throw.
struct CudaPlugin {
  int devices = 0;  // GPUs this process sees
  // Selects the GPU of this process.
  absl::Status (*select_device)(int device) = nullptr;
  std::unique_ptr<Streams> (*make_streams)() = nullptr;
  absl::StatusOr<CommunicatorFactory> (*make_nccl_factory)(const RendezvousOptions& options) = nullptr;
  // Communicators that rotate through symmetric memory and do nothing else: for groups of ranks of one host. Ranks may share a
  // GPU where the environment has PyTorch's TORCH_SYMM_MEM_ALLOW_OVERLAPPING_DEVICES=1.
  absl::StatusOr<CommunicatorFactory> (*make_symmetric_factory)(const RendezvousOptions& options) = nullptr;
  // Peak bytes of live tensors since the start; call it after the first tensor.
  int64_t (*peak_allocated_bytes)(int device) = nullptr;
  // The GPU of this process with this UUID, "GPU-…"; -1: there is none.
  int (*device_of_uuid)(const char* uuid) = nullptr;
  std::unique_ptr<DeviceTimer> (*make_timer)() = nullptr;
  // Of the GPU of this process; after select_device.
  std::unique_ptr<DeviceClock> (*make_clock)() = nullptr;
  // "card" and the versions "cuda", "cudnn", "cublas", "nccl"; without those that cannot be found out.
  std::map<std::string, std::string> (*describe)(int device) = nullptr;
  // What code for the GPU is compiled for: "sm_90". Empty: it cannot be found out.
  std::string (*architecture)(int device) = nullptr;
  // Functions of machine code (a cubin), in the order of `names`. They stay loaded, and run on any GPU of the architecture.
  absl::StatusOr<std::vector<void*>> (*load_functions)(const std::string& cubin, const std::vector<std::string>& names) = nullptr;
  // Enqueues such a function on the current stream of the GPU; `argument` is its only one, and is copied.
  absl::Status (*launch_function)(void* function, int device, int64_t blocks, int threads, void* argument) = nullptr;
};

// Opens the plugin `path`; empty: liblegoai_cuda.so beside the running binary. Errors: FailedPrecondition that names the missing
// library or says that no GPU is visible.
absl::StatusOr<const CudaPlugin*> LoadCudaPlugin(const std::string& path = "");

}  // namespace legoai::comm
