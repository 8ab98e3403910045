#include "worker/comm/cuda_plugin.h"

#include <dlfcn.h>
#include <torch/version.h>

#include <filesystem>

#include "absl/strings/match.h"
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

// What to do about a plugin that is not there, or cannot be loaded: mostly since libraries of NVIDIA's are missing. In a build
// tree they are fetched; where the plugin is installed beside the programs they are torch's.
std::string RemedyFor(const std::string& path) {
  std::error_code error;
  const std::filesystem::path place = std::filesystem::canonical(path, error);
  if (error) return "build //worker/comm/cuda:liblegoai_cuda.so for the plugin, `tools/fetch_deps gpu` brings CUDA's libraries";
  const std::string folder = place.parent_path().string();
  if (absl::EndsWith(folder, "/worker/comm/cuda")) return "`tools/fetch_deps gpu` brings CUDA's libraries";
  return "CUDA's libraries come with Python's torch: `pip install torch==" TORCH_VERSION "` with NVIDIA's wheels";
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
  const std::string file = path.empty() ? FindPlugin() : path;
  void* library = dlopen(file.c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (library == nullptr) return NoGpu(absl::StrCat(dlerror(), "; ", RemedyFor(file)));
  using Entry = const CudaPlugin* (*)();
  auto entry = reinterpret_cast<Entry>(dlsym(library, "legoai_cuda_plugin"));
  if (entry == nullptr) return NoGpu("the plugin has no entry point; rebuild it with this version");
  const CudaPlugin* plugin = entry();
  if (plugin->devices == 0) return NoGpu("the driver shows no device; CUDA 13 needs driver 580 or newer");
  return loaded = plugin;
}

}  // namespace legoai::comm
