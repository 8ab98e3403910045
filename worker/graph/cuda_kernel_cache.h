// Machine code of kernels for GPUs, compiled by NVRTC where the cache (kernel_files.h) does not have it: built by a version of
// NVRTC, for an architecture, with flags.
//
// NVRTC is NVIDIA's compiler as a library (the wheel nvidia-cuda-nvrtc, which Python's torch brings), opened when it is first
// needed: LEGOAI_NVRTC, else libnvrtc.so.13 where the dynamic linker looks. It needs no GPU. Thread-safe.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/graph/kernel_files.h"

namespace legoai::graph {

// What a kernel for an architecture, "sm_90", is built by, in one line: NVRTC's version and the flags. Errors:
// FailedPrecondition, saying what to install or set.
absl::StatusOr<std::string> CudaKernelsAreBuiltBy(const std::string& architecture);

// The machine code (a cubin) of a source. `counts` and `notes` (of what was built again, and why) are added to. Errors: those of
// CudaKernelsAreBuiltBy; FailedPrecondition of an architecture that NVRTC does not know, or of the compiler, with what it said;
// of the cache's folder.
absl::StatusOr<std::string> LoadCudaKernel(const std::string& source, const std::string& architecture, KernelCounts* counts,
                                           std::vector<std::string>* notes, const GoesOn& goes_on = nullptr);

// What LoadCudaKernel calls the file of a source; for tests.
absl::StatusOr<std::string> CudaKernelPath(const std::string& source, const std::string& architecture);

}  // namespace legoai::graph
