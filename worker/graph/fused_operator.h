// lego::fused on tensors of CPUs and GPUs (core/trace/fused_kernel.h), and the kernels that a Trace needs for it.
//
//   lego::fused(Tensor[] inputs, Tensor(a!)[] written, str kernel) -> Tensor[]
//
// Below autograd. On a CPU threads share the loop, on a GPU it is enqueued on the current stream; no element depends on how many
// threads or blocks there are. Errors: c10::Error for tensors that the kernel is not of, or one that was not compiled.
#pragma once

#include <c10/core/Device.h>

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/trace/trace.h"
#include "worker/graph/kernel_files.h"

namespace legoai::graph {

// Loads the kernels of a Trace's fused operators for a device, compiling those that the cache does not have. They stay with the
// process. `notes`, `goes_on`: as of BuiltKernel. Errors: those of LoadKernel (kernel_cache.h) or LoadCudaKernel
// (cuda_kernel_cache.h), of ParseFusedKernel, and for a GPU of comm::LoadCudaPlugin. Thread-safe.
absl::Status PrepareKernels(const Trace& trace, c10::Device device, KernelCounts* counts, std::vector<std::string>* notes,
                            const GoesOn& goes_on = nullptr);

// What the kernels of this process are built by for a device, in one line. Errors: as of PrepareKernels.
absl::StatusOr<std::string> KernelsAreBuiltBy(c10::Device device);

}  // namespace legoai::graph
