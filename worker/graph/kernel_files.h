// Compiled kernels on disk, whoever compiles them.
//
// What becomes of a source is built once: it lies in the cache under the digest of the source and of what it is built by. Each
// file ends with what it was built by and the digest of its bytes; one that is damaged, or says otherwise, is built again, and
// that is noted. Files get their names when they are whole. One process builds at a time, and others find what it made. What a
// killed process left unfinished is removed after a day; kernels stay for ever.
//
// The cache: LEGOAI_KERNEL_CACHE, else legoai/kernels in XDG_CACHE_HOME or ~/.cache; a folder of somebody else's is refused,
// since what lies there is run. Thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace legoai::graph {

struct KernelCounts {
  int64_t loaded = 0;    // from the cache
  int64_t compiled = 0;  // by this process
  double seconds = 0;    // of the compiler
};

// Called again and again while other processes compile, and before each kernel, which shows that it goes on. May be empty.
using GoesOn = std::function<void()>;

struct KernelBuilder {
  std::string built_by;  // in one line: all that a kernel depends on beside its source
  std::string suffix;    // of its files: ".so"
  // Makes the file `object`, which is there and empty, of a source; what else it makes is called `object` and a suffix, and gone
  // when it ends.
  std::function<absl::Status(const std::string& source, const std::string& object)> build;
};

// The path of a source's kernel, which is whole. `counts` and `notes` (of what was built again, and why) are added to. Errors:
// those of `build`; of the cache's folder.
absl::StatusOr<std::string> BuiltKernel(const KernelBuilder& builder, const std::string& source, KernelCounts* counts,
                                        std::vector<std::string>* notes, const GoesOn& goes_on = nullptr);
// What `build` wrote there. Errors: DataLoss where the file is damaged.
absl::StatusOr<std::string> ReadBuiltKernel(const KernelBuilder& builder, const std::string& path);

// The cache's folder, which is made. Errors: FieldError of LEGOAI_KERNEL_CACHE.
absl::StatusOr<std::string> KernelFolder();
// A new file, whose name nobody else has, whatever host or container it comes from: `path` and a suffix.
absl::StatusOr<std::string> NewKernelPart(const std::string& path);
// What a compiler said, without white space around it; its beginning where it is long.
std::string ShortOutput(std::string text);
// A variable of the environment; empty where it is not set.
std::string EnvironmentOf(const char* name);
// What BuiltKernel calls the file of a source.
std::string KernelPathIn(const std::string& folder, const KernelBuilder& builder, const std::string& source);

}  // namespace legoai::graph
