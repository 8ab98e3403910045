#include "worker/graph/testing/nvrtc_library.h"

#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"

namespace legoai::graph::testing_cuda {

// Beside the sources, to which the lock among this test's files is a link.
absl::Status UseFetchedNvrtc() {
  std::error_code error;
  const std::filesystem::path lock = std::filesystem::canonical("tools/nvrtc.lock", error);
  const auto library = lock.parent_path().parent_path() / ".nvrtc" / "nvidia" / "cu13" / "lib" / "libnvrtc.so.13";
  if (error || !std::filesystem::exists(library, error))
    return absl::FailedPreconditionError(absl::StrCat(library.string(), " is not there: run tools/fetch_deps nvrtc"));
  setenv("LEGOAI_NVRTC", library.c_str(), 1);
  return absl::OkStatus();
}

}  // namespace legoai::graph::testing_cuda
