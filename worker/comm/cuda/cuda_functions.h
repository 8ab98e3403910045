// Functions of machine code that was compiled while the program ran, by the CUDA runtime's libraries (cudaLibraryLoadData), which
// belong to no context. Thread-safe. Functions never throw.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace legoai::comm {

// "sm_90" of a GPU of compute capability 9.0; empty: it cannot be found out.
std::string CudaArchitecture(int device);

// As load_functions and launch_function of CudaPlugin.
absl::StatusOr<std::vector<void*>> LoadCudaFunctions(const std::string& cubin, const std::vector<std::string>& names);
absl::Status LaunchCudaFunction(void* function, int device, int64_t blocks, int threads, void* argument);

}  // namespace legoai::comm
