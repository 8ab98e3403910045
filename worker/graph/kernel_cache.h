// Kernels of C++ in this process, compiled by the machine's C++ compiler where the cache (kernel_files.h) does not have them:
// built by a compiler, its version and flags, and the processor's features, so no other compiler's or processor's is ever taken.
//
// The compiler: LEGOAI_CXX, else c++, g++ or clang++ of PATH. Thread-safe.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/graph/kernel_files.h"

namespace legoai::graph {

struct KernelCompiler {
  std::string path;     // of the program
  std::string version;  // the first line of `--version`
};
// Errors: FailedPrecondition, saying what to install or set.
absl::StatusOr<KernelCompiler> FindKernelCompiler();

using KernelFunction = void (*)(void* const* tensors, long begin, long end);  // worker/graph/kernel_source.h

// What a kernel of this process is built by, in one line: the compiler's version, the flags, and a digest of the processor's
// features. Errors: those of FindKernelCompiler.
absl::StatusOr<std::string> CpuKernelsAreBuiltBy();

// A source's function; stays loaded. `counts` and `notes` (of what was built again, and why) are added to. Errors: of the
// compiler, with what it said; of the cache's folder.
absl::StatusOr<KernelFunction> LoadKernel(const std::string& source, KernelCounts* counts, std::vector<std::string>* notes,
                                          const GoesOn& goes_on = nullptr);

// What LoadKernel calls the file of a source; for tests.
absl::StatusOr<std::string> KernelPath(const std::string& source);

}  // namespace legoai::graph
