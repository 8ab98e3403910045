#include "worker/graph/cuda_kernel_cache.h"

#include <dlfcn.h>

#include <cerrno>
#include <fstream>
#include <map>
#include <memory>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/process/mutex.h"
#include "proto/errors.h"
#include "proto/read_file.h"
#include "proto/status.h"
#include "worker/graph/kernel_files.h"

namespace legoai::graph {
namespace {

constexpr char kLibrary[] = "libnvrtc.so.13";

// Division and square root stay exact, products and sums are contracted as nvcc does it for ATen.
std::vector<std::string> Flags(const std::string& architecture) {
  return {"--gpu-architecture=" + architecture, "--std=c++17", "--fmad=true", "--prec-div=true", "--prec-sqrt=true",
          "--ftz=false"};
}

// What is used of nvrtc.h, whose functions and codes are the same in all versions of a major number.
using Program = struct NvrtcProgram*;
constexpr int kSuccess = 0;

struct Nvrtc {
  void* library = nullptr;
  int (*version)(int* major, int* minor) = nullptr;
  const char* (*error)(int result) = nullptr;
  int (*create)(Program* program, const char* source, const char* name, int headers, const char* const* texts,
                const char* const* names) = nullptr;
  int (*destroy)(Program* program) = nullptr;
  int (*compile)(Program program, int options, const char* const* texts) = nullptr;
  int (*log_size)(Program program, size_t* bytes) = nullptr;
  int (*log)(Program program, char* text) = nullptr;
  int (*cubin_size)(Program program, size_t* bytes) = nullptr;
  int (*cubin)(Program program, char* bytes) = nullptr;
  std::string version_text;

  template <class F>
  bool Find(const char* name, F* function) {
    *function = reinterpret_cast<F>(dlsym(library, name));
    return *function != nullptr;
  }
  bool FindAll() {
    return Find("nvrtcVersion", &version) && Find("nvrtcGetErrorString", &error) && Find("nvrtcCreateProgram", &create) &&
           Find("nvrtcDestroyProgram", &destroy) && Find("nvrtcCompileProgram", &compile) &&
           Find("nvrtcGetProgramLogSize", &log_size) && Find("nvrtcGetProgramLog", &log) &&
           Find("nvrtcGetCUBINSize", &cubin_size) && Find("nvrtcGetCUBIN", &cubin);
  }
};

absl::Status NoNvrtc(const std::string& named, const std::string& why) {
  if (!named.empty())
    return FieldError("LEGOAI_NVRTC", named, absl::StrCat("is no NVRTC (", why, "): name the library ", kLibrary),
                      absl::StatusCode::kFailedPrecondition);
  return FieldError("compile.fuse", "true",
                    absl::StrCat("needs NVIDIA's compiler NVRTC (", why, "): it comes with Python's torch, in the wheel "
                                 "nvidia-cuda-nvrtc; or name its library in LEGOAI_NVRTC"),
                    absl::StatusCode::kFailedPrecondition);
}

// NVRTC looks for a second library where the dynamic linker does, which need not be the folder of the first. Once it is open it
// is found by its name; where it is not beside it, NVRTC says so.
void OpenBuiltins(void* beside, const std::string& name) {
  Dl_info place;
  if (dladdr(beside, &place) == 0) return;
  const std::string path = place.dli_fname;
  const size_t slash = path.rfind('/');
  if (slash != std::string::npos) (void)dlopen((path.substr(0, slash + 1) + name).c_str(), RTLD_NOW | RTLD_LOCAL);
}

absl::StatusOr<Nvrtc> Open(const std::string& named) {
  Nvrtc nvrtc;
  nvrtc.library = dlopen(named.empty() ? kLibrary : named.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (nvrtc.library == nullptr) return NoNvrtc(named, dlerror());
  int major = 0, minor = 0;
  if (!nvrtc.FindAll() || nvrtc.version(&major, &minor) != kSuccess) return NoNvrtc(named, "it lacks functions");
  nvrtc.version_text = absl::StrCat("NVRTC ", major, ".", minor);
  OpenBuiltins(reinterpret_cast<void*>(nvrtc.version), absl::StrCat("libnvrtc-builtins.so.", major, ".", minor));
  return nvrtc;
}

// By what LEGOAI_NVRTC says; stays open.
absl::StatusOr<const Nvrtc*> FindNvrtc() {
  static Mutex mutex;
  static auto* const known = new std::map<std::string, Nvrtc>();
  const std::string named = EnvironmentOf("LEGOAI_NVRTC");
  const MutexLock lock(mutex);
  const auto found = known->find(named);
  if (found != known->end()) return &found->second;
  ASSIGN_OR_RETURN(const Nvrtc nvrtc, Open(named));
  return &known->emplace(named, nvrtc).first->second;
}

std::string BuiltBy(const Nvrtc& nvrtc, const std::string& architecture) {
  return absl::StrCat(nvrtc.version_text, " | ", absl::StrJoin(Flags(architecture), " "));
}

// One program of NVRTC, to its end.
class Compilation {
 public:
  explicit Compilation(const Nvrtc& nvrtc) : nvrtc_(nvrtc) {}
  ~Compilation() {
    if (program_ != nullptr) nvrtc_.destroy(&program_);
  }
  Compilation(const Compilation&) = delete;
  Compilation& operator=(const Compilation&) = delete;

  absl::StatusOr<std::string> Run(const std::string& source, const std::string& architecture) {
    RETURN_IF_ERROR(Check(nvrtc_.create(&program_, source.c_str(), "fused.cu", 0, nullptr, nullptr)));
    const std::vector<std::string> flags = Flags(architecture);
    std::vector<const char*> texts;
    for (const std::string& flag : flags) texts.push_back(flag.c_str());
    RETURN_IF_ERROR(Check(nvrtc_.compile(program_, static_cast<int>(texts.size()), texts.data())));
    size_t bytes = 0;
    RETURN_IF_ERROR(Check(nvrtc_.cubin_size(program_, &bytes)));
    std::string cubin(bytes, '\0');
    RETURN_IF_ERROR(Check(nvrtc_.cubin(program_, cubin.data())));
    return cubin;
  }

 private:
  absl::Status Check(int result) const {
    if (result == kSuccess) return absl::OkStatus();
    return absl::FailedPreconditionError(absl::StrCat(nvrtc_.version_text, ": ", nvrtc_.error(result), ": ", Log()));
  }
  std::string Log() const {
    size_t bytes = 0;
    if (program_ == nullptr || nvrtc_.log_size(program_, &bytes) != kSuccess || bytes == 0) return "";
    std::string text(bytes, '\0');
    if (nvrtc_.log(program_, text.data()) != kSuccess) return "";
    while (!text.empty() && text.back() == '\0') text.pop_back();
    return ShortOutput(std::move(text));
  }

  const Nvrtc& nvrtc_;
  Program program_ = nullptr;
};

absl::Status Compile(const Nvrtc& nvrtc, const std::string& architecture, const std::string& source, const std::string& object) {
  ASSIGN_OR_RETURN(const std::string cubin, Compilation(nvrtc).Run(source, architecture));
  std::ofstream file(object, std::ios::binary);
  file << cubin;
  file.close();
  return file ? absl::OkStatus() : FileError(object, "cannot be written", errno);
}

absl::StatusOr<KernelBuilder> BuilderFor(const std::string& architecture) {
  ASSIGN_OR_RETURN(const Nvrtc* const nvrtc, FindNvrtc());
  return KernelBuilder{BuiltBy(*nvrtc, architecture), ".cubin",
                       [nvrtc, architecture](const std::string& source, const std::string& object) {
                         return Compile(*nvrtc, architecture, source, object);
                       }};
}

}  // namespace

absl::StatusOr<std::string> CudaKernelsAreBuiltBy(const std::string& architecture) {
  ASSIGN_OR_RETURN(const Nvrtc* const nvrtc, FindNvrtc());
  return BuiltBy(*nvrtc, architecture);
}

absl::StatusOr<std::string> LoadCudaKernel(const std::string& source, const std::string& architecture, KernelCounts* counts,
                                           std::vector<std::string>* notes, const GoesOn& goes_on) {
  ASSIGN_OR_RETURN(const KernelBuilder builder, BuilderFor(architecture));
  ASSIGN_OR_RETURN(const std::string path, BuiltKernel(builder, source, counts, notes, goes_on));
  return ReadBuiltKernel(builder, path);
}

absl::StatusOr<std::string> CudaKernelPath(const std::string& source, const std::string& architecture) {
  ASSIGN_OR_RETURN(const std::string folder, KernelFolder());
  ASSIGN_OR_RETURN(const KernelBuilder builder, BuilderFor(architecture));
  return KernelPathIn(folder, builder, source);
}

}  // namespace legoai::graph
