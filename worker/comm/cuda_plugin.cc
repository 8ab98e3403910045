#include "worker/comm/cuda_plugin.h"

#include <dlfcn.h>

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "proto/errors.h"

namespace legoai::comm {
namespace {

std::string BesideThisBinary() {
  std::error_code error;
  const auto binary = std::filesystem::read_symlink("/proc/self/exe", error);
  const std::string beside = (binary.parent_path() / "liblegoai_cuda.so").string();
  return std::filesystem::exists(beside, error) ? beside : "liblegoai_cuda.so";
}

absl::Status NoGpu(const std::string& why) {
  return FieldError(
      "device", "cuda",
      absl::StrCat("no GPU can be used here (", why, "); train on device cpu, or on a machine with an NVIDIA driver"),
      absl::StatusCode::kFailedPrecondition);
}

}  // namespace

absl::StatusOr<const CudaPlugin*> LoadCudaPlugin(const std::string& path) {
  static const CudaPlugin* loaded = nullptr;
  if (loaded != nullptr) return loaded;
  void* library = dlopen((path.empty() ? BesideThisBinary() : path).c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (library == nullptr) return NoGpu(dlerror());
  using Entry = const CudaPlugin* (*)();
  auto entry = reinterpret_cast<Entry>(dlsym(library, "legoai_cuda_plugin"));
  if (entry == nullptr) return NoGpu("the plugin has no entry point; rebuild it with this version");
  const CudaPlugin* plugin = entry();
  if (plugin->devices == 0) return NoGpu("the driver shows no device");
  return loaded = plugin;
}

}  // namespace legoai::comm
