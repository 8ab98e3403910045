// lego::fused on CPU tensors (core/trace/fused_kernel.h), and the kernels that a Trace needs for it.
//
//   lego::fused(Tensor[] inputs, Tensor(a!)[] written, str kernel) -> Tensor[]
//
// Below autograd; threads share the loop, and no element depends on how many there are. Errors: c10::Error for tensors that the
// kernel is not of, or one that was not compiled.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "core/trace/trace.h"
#include "worker/graph/kernel_cache.h"

namespace legoai::graph {

// Loads the kernels of a Trace's fused operators, compiling those that the cache does not have. They stay with the process.
// `notes`, `goes_on`: as of LoadKernel. Errors: those of LoadKernel and ParseFusedKernel. Thread-safe.
absl::Status PrepareKernels(const Trace& trace, KernelCounts* counts, std::vector<std::string>* notes,
                            const GoesOn& goes_on = nullptr);

}  // namespace legoai::graph
