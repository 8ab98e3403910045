#include "worker/graph/kernel_cache.h"

#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <map>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "core/checkpoint/files.h"
#include "core/process/child_process.h"
#include "core/process/mutex.h"
#include "proto/errors.h"
#include "proto/status.h"
#include "worker/graph/kernel_files.h"

namespace legoai::graph {
namespace {

// No flag lets the compiler change the order of a sum, so that results do not depend on it.
const std::vector<std::string>& Flags() {
  static const auto* const flags = new std::vector<std::string>{
      "-x", "c++", "-std=c++17", "-O3", "-march=native", "-fno-math-errno", "-fno-trapping-math", "-fPIC", "-shared"};
  return *flags;
}

std::string Tail(const std::string& path) {
  std::ifstream file(path);
  return ShortOutput({std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()});
}

// Runs a program to its end; what it said is in the file at `log`.
absl::Status RunProgram(const std::vector<std::string>& arguments, const std::string& log) {
  ASSIGN_OR_RETURN(const pid_t pid, launch::SpawnChild({.arguments = arguments, .inherited = {}, .cpu = {}, .log_path = log}));
  int status = 0;
  while (waitpid(pid, &status, 0) < 0) {
    if (errno != EINTR) return absl::InternalError(absl::StrCat(arguments[0], ": its end was not seen"));
  }
  if (status == 0) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(arguments[0], " ", launch::DescribeWaitStatus(status), ": ", Tail(log)));
}

std::string FindInPath(const std::string& name) {
  if (absl::StrContains(name, '/')) return access(name.c_str(), X_OK) == 0 ? name : "";
  const std::string path = EnvironmentOf("PATH");
  for (const absl::string_view folder : absl::StrSplit(path.empty() ? "/usr/local/bin:/usr/bin:/bin" : path, ':')) {
    const std::string file = absl::StrCat(folder, "/", name);
    if (!folder.empty() && access(file.c_str(), X_OK) == 0) return file;
  }
  return "";
}

// The features of the processor that -march=native asks for.
std::string Processor() {
  std::ifstream file("/proc/cpuinfo");
  std::string line, features;
  while (std::getline(file, line) && !line.empty()) {
    for (const char* const key : {"flags", "Features", "model name", "CPU part"}) {
      if (absl::StartsWith(line, key)) absl::StrAppend(&features, line, "\n");
    }
  }
  return checkpoint::Sha256(features);
}

absl::StatusOr<KernelCompiler> AskCompiler(const std::string& path, const std::string& folder) {
  ASSIGN_OR_RETURN(const std::string log, NewKernelPart(folder + "/version"));
  const absl::Status ran = RunProgram({path, "--version"}, log);
  const std::string text = Tail(log);
  unlink(log.c_str());
  RETURN_IF_ERROR(ran);
  return KernelCompiler{path, text.substr(0, text.find('\n'))};
}

// What a kernel is built by, in one line.
std::string BuiltBy(const KernelCompiler& compiler) {
  return absl::StrCat(compiler.version, " | ", absl::StrJoin(Flags(), " "), " | processor ", Processor().substr(0, 16));
}

absl::Status WriteSource(const std::string& path, const std::string& source) {
  std::ofstream file(path);
  file << source;
  file.close();
  return file ? absl::OkStatus() : FileError(path, "cannot be written", errno);
}

absl::Status Compile(const KernelCompiler& compiler, const std::string& source, const std::string& object) {
  const std::string code = object + ".cc", log = object + ".log";
  std::vector<std::string> arguments = {compiler.path};
  arguments.insert(arguments.end(), Flags().begin(), Flags().end());
  arguments.insert(arguments.end(), {"-o", object, code});
  absl::Status status = WriteSource(code, source);
  if (status.ok()) status = RunProgram(arguments, log);
  for (const std::string& file : {code, log}) unlink(file.c_str());
  return status;
}

absl::StatusOr<KernelFunction> Open(const std::string& path) {
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return absl::InternalError(absl::StrCat("kernel ", path, " cannot be loaded: ", dlerror()));
  void* const function = dlsym(library, "lego_kernel");
  if (function == nullptr) return absl::InternalError(absl::StrCat("kernel ", path, " has no function: ", dlerror()));
  return reinterpret_cast<KernelFunction>(function);
}

absl::StatusOr<KernelBuilder> FindBuilder() {
  ASSIGN_OR_RETURN(const KernelCompiler compiler, FindKernelCompiler());
  return KernelBuilder{BuiltBy(compiler), ".so", [compiler](const std::string& source, const std::string& object) {
                         return Compile(compiler, source, object);
                       }};
}

}  // namespace

absl::StatusOr<KernelCompiler> FindKernelCompiler() {
  static Mutex mutex;
  static auto* const known = new std::map<std::string, KernelCompiler>();  // by path; a compiler does not change under a process
  const std::string named = EnvironmentOf("LEGOAI_CXX");
  std::vector<std::string> names = {"c++", "g++", "clang++"};
  if (!named.empty()) names = {named};
  std::string path;
  for (const std::string& name : names) {
    if (path.empty()) path = FindInPath(name);
  }
  if (path.empty() && !named.empty())
    return FieldError("LEGOAI_CXX", named, "is no program that can be run: name a C++ compiler",
                      absl::StatusCode::kFailedPrecondition);
  if (path.empty())
    return FieldError("compile.fuse", "true",
                      "needs a C++ compiler, and PATH has none of c++, g++ and clang++: install one (Debian's g++), or name one "
                      "in LEGOAI_CXX",
                      absl::StatusCode::kFailedPrecondition);
  const MutexLock lock(mutex);
  const auto found = known->find(path);
  if (found != known->end()) return found->second;
  ASSIGN_OR_RETURN(const std::string folder, KernelFolder());
  ASSIGN_OR_RETURN(const KernelCompiler compiler, AskCompiler(path, folder));
  return known->emplace(path, compiler).first->second;
}

absl::StatusOr<std::string> KernelPath(const std::string& source) {
  ASSIGN_OR_RETURN(const std::string folder, KernelFolder());
  ASSIGN_OR_RETURN(const KernelBuilder builder, FindBuilder());
  return KernelPathIn(folder, builder, source);
}

absl::StatusOr<std::string> CpuKernelsAreBuiltBy() {
  ASSIGN_OR_RETURN(const KernelCompiler compiler, FindKernelCompiler());
  return BuiltBy(compiler);
}

absl::StatusOr<KernelFunction> LoadKernel(const std::string& source, KernelCounts* counts, std::vector<std::string>* notes,
                                          const GoesOn& goes_on) {
  RETURN_IF_ERROR(KernelFolder().status());  // what is wrong with it is said first
  ASSIGN_OR_RETURN(const KernelBuilder builder, FindBuilder());
  ASSIGN_OR_RETURN(const std::string path, BuiltKernel(builder, source, counts, notes, goes_on));
  return Open(path);
}

}  // namespace legoai::graph
