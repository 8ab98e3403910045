#include "worker/comm/cuda_plugin.h"

#include <dlfcn.h>

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "proto/errors.h"

namespace legoai::comm {
namespace {

// Installed beside the binary; in a build tree in its own folder.
std::string FindPlugin() {
  std::error_code error;
  const auto folder = std::filesystem::read_symlink("/proc/self/exe", error).parent_path();
  for (const char* place : {"liblegoai_cuda.so", "../comm/cuda/liblegoai_cuda.so", "../../worker/comm/cuda/liblegoai_cuda.so"}) {
    if (std::filesystem::exists(folder / place, error)) return (folder / place).string();
  }
  return "liblegoai_cuda.so";  // where the dynamic linker looks
}

absl::Status NoGpu(const std::string& why) {
  return FieldError("device", "cuda",
                    absl::StrCat("no GPU can be used here (", why, "); use a machine with a GPU, or device cpu"),
                    absl::StatusCode::kFailedPrecondition);
}

}  // namespace

absl::StatusOr<const CudaPlugin*> LoadCudaPlugin(const std::string& path) {
  static const CudaPlugin* loaded = nullptr;
  if (loaded != nullptr) return loaded;
  void* library = dlopen((path.empty() ? FindPlugin() : path).c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (library == nullptr) {
    return NoGpu(absl::StrCat(dlerror(), "; `tools/fetch_deps gpu` brings CUDA's libraries, the build of",
                              " //worker/comm/cuda:liblegoai_cuda.so the plugin"));
  }
  using Entry = const CudaPlugin* (*)();
  auto entry = reinterpret_cast<Entry>(dlsym(library, "legoai_cuda_plugin"));
  if (entry == nullptr) return NoGpu("the plugin has no entry point; rebuild it with this version");
  const CudaPlugin* plugin = entry();
  if (plugin->devices == 0) return NoGpu("the driver shows no device; CUDA 13 needs driver 580 or newer");
  return loaded = plugin;
}

}  // namespace legoai::comm
