// Compiled kernels of a program, on disk and in the process.
//
// A source becomes a shared object by the machine's C++ compiler, once: it lies in the cache under the digest of source,
// compiler, its version and flags, and the processor's features, so no other compiler's or processor's kernel is ever taken for
// it. Each file ends with what it was built by and the digest of its bytes; one that is damaged, or says otherwise, is built
// again, and that is noted. Files get their names when they are whole. One process compiles at a time, and others find what it
// made. What a killed process left unfinished is removed after a day; kernels stay for ever.
//
// The compiler: LEGOAI_CXX, else c++, g++ or clang++ of PATH. The cache: LEGOAI_KERNEL_CACHE, else legoai/kernels in
// XDG_CACHE_HOME or ~/.cache; a folder of somebody else's is refused, since what lies there is run. Thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/trace/trace.h"

namespace legoai::graph {

struct KernelCompiler {
  std::string path;     // of the program
  std::string version;  // the first line of `--version`
};
// Errors: FailedPrecondition, saying what to install or set.
absl::StatusOr<KernelCompiler> FindKernelCompiler();

using KernelFunction = void (*)(void* const* tensors, long begin, long end);  // worker/graph/kernel_source.h

struct KernelCounts {
  int64_t loaded = 0;    // from the cache
  int64_t compiled = 0;  // by this process
  double seconds = 0;    // of the compiler
};

// What a kernel of this process is built by, in one line: the compiler's version, the flags, and a digest of the processor's
// features. Errors: those of FindKernelCompiler.
absl::StatusOr<std::string> KernelsAreBuiltBy();

// Called again and again while other processes compile, and before each kernel, which shows that it goes on. May be empty.
using GoesOn = std::function<void()>;

// A source's function; stays loaded. `counts` and `notes` (of what was built again, and why) are added to. Errors: of the
// compiler, with what it said; of the cache's folder.
absl::StatusOr<KernelFunction> LoadKernel(const std::string& source, KernelCounts* counts, std::vector<std::string>* notes,
                                          const GoesOn& goes_on = nullptr);

// What LoadKernel calls the file of a source; for tests.
absl::StatusOr<std::string> KernelPath(const std::string& source);

}  // namespace legoai::graph
