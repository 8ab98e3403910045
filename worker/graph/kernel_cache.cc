#include "worker/graph/kernel_cache.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <system_error>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "core/checkpoint/files.h"
#include "core/process/child_process.h"
#include "core/process/mutex.h"
#include "proto/errors.h"
#include "proto/status.h"

namespace legoai::graph {
namespace {

namespace fs = std::filesystem;

constexpr char kTrailer[] = "\nlegoai-kernel-1\n";  // then what it was built by, and the digest of the bytes before it
constexpr size_t kMostOutput = 2000;  // bytes of what a compiler says
// No flag lets the compiler change the order of a sum, so that results do not depend on it.
const std::vector<std::string>& Flags() {
  static const auto* const flags = new std::vector<std::string>{
      "-x", "c++", "-std=c++17", "-O3", "-march=native", "-fno-math-errno", "-fno-trapping-math", "-fPIC", "-shared"};
  return *flags;
}

std::string Variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::string Tail(const std::string& path) {
  std::ifstream file(path);
  std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (text.size() > kMostOutput) text = absl::StrCat(text.substr(0, kMostOutput), "...");
  return std::string(absl::StripAsciiWhitespace(text));
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
  const std::string path = Variable("PATH");
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

absl::StatusOr<std::string> Folder() {
  std::string folder = Variable("LEGOAI_KERNEL_CACHE");
  if (folder.empty()) {
    std::string cache = Variable("XDG_CACHE_HOME");
    if (cache.empty() && Variable("HOME").empty())
      return FieldError("LEGOAI_KERNEL_CACHE", "", "name a folder for compiled kernels: there is no HOME");
    if (cache.empty()) cache = Variable("HOME") + "/.cache";
    folder = cache + "/legoai/kernels";
  }
  while (folder.size() > 1 && folder.back() == '/') folder.pop_back();
  std::error_code error;  // what fails is said below
  fs::create_directories(fs::path(folder).parent_path(), error);
  mkdir(folder.c_str(), 0700);  // at once, since others may look at it meanwhile; or it is there
  struct stat facts = {};
  if (stat(folder.c_str(), &facts) != 0 || access(folder.c_str(), W_OK) != 0)
    return FieldError("LEGOAI_KERNEL_CACHE", folder, "cannot be made or written: name another folder for compiled kernels");
  if (facts.st_uid != geteuid() || (facts.st_mode & (S_IWGRP | S_IWOTH)) != 0)
    return FieldError("LEGOAI_KERNEL_CACHE", folder,
                      "is somebody else's or may be written by others, and what lies there is run: name a folder of your own");
  return folder;
}

// A new file, whose name nobody else has, whatever host or container it comes from: `path` and a suffix.
absl::StatusOr<std::string> NewFile(const std::string& path) {
  std::string name = path + ".XXXXXX";
  const int file = mkostemp(name.data(), O_CLOEXEC);
  if (file < 0) return FileError(name, "cannot be made", errno);
  close(file);
  return name;
}

// Files that a process which was killed left behind.
void RemoveOldParts(const std::string& folder) {
  std::error_code error;
  const auto old = fs::file_time_type::clock::now() - std::chrono::hours(24);
  for (fs::directory_iterator file(folder, error), end; !error && file != end; file.increment(error)) {
    const std::string name = file->path().filename();
    std::error_code gone;  // another process may remove it as well
    if (!absl::StartsWith(name, "version.") && !absl::StrContains(name, ".so.")) continue;
    if (file->last_write_time(gone) < old && !gone) fs::remove(file->path(), gone);
  }
}

absl::StatusOr<KernelCompiler> AskCompiler(const std::string& path, const std::string& folder) {
  ASSIGN_OR_RETURN(const std::string log, NewFile(folder + "/version"));
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

// Why a file is no kernel that was built so; empty where it is one.
std::string Fault(const std::string& bytes, const std::string& built_by) {
  const size_t at = bytes.rfind(kTrailer);
  if (at == std::string::npos) return "it is damaged: it has no end";
  const std::vector<std::string> lines = absl::StrSplit(bytes.substr(at + sizeof(kTrailer) - 1), '\n');
  if (lines.size() != 3 || lines[1] != checkpoint::Sha256(std::string_view(bytes).substr(0, at)))
    return "it is damaged: its bytes are not those that were written";
  if (lines[0] != built_by) return absl::StrCat("it was built by ", lines[0], ", not by ", built_by);
  return "";
}

// One process at a time compiles; ends with the object.
class CompileLock {
 public:
  CompileLock() = default;
  ~CompileLock() {
    if (file_ >= 0) close(file_);
  }
  CompileLock(const CompileLock&) = delete;
  CompileLock& operator=(const CompileLock&) = delete;

  absl::Status Take(const std::string& folder, const GoesOn& goes_on) {
    const std::string path = folder + "/lock";
    file_ = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (file_ < 0) return FileError(path, "cannot be opened", errno);
    while (flock(file_, LOCK_EX | LOCK_NB) != 0) {
      if (errno != EWOULDBLOCK && errno != EINTR) return FileError(path, "cannot be locked", errno);
      if (goes_on) goes_on();
      usleep(20'000);
    }
    return absl::OkStatus();
  }

 private:
  int file_ = -1;
};

absl::Status WriteSource(const std::string& path, const std::string& source) {
  std::ofstream file(path);
  file << source;
  file.close();
  return file ? absl::OkStatus() : FileError(path, "cannot be written", errno);
}

absl::Status Compile(const KernelCompiler& compiler, const std::string& source, const std::string& built_by,
                     const std::string& path) {
  ASSIGN_OR_RETURN(const std::string part, NewFile(path));
  const std::string code = part + ".cc", object = part + ".so", log = part + ".log";
  std::vector<std::string> arguments = {compiler.path};
  arguments.insert(arguments.end(), Flags().begin(), Flags().end());
  arguments.insert(arguments.end(), {"-o", object, code});
  absl::Status status = WriteSource(code, source);
  if (status.ok()) status = RunProgram(arguments, log);
  if (status.ok()) {
    auto bytes = checkpoint::ReadFile(object);
    status = bytes.status();
    if (status.ok()) {
      std::ofstream file(object, std::ios::binary | std::ios::app);
      file << kTrailer << built_by << "\n" << checkpoint::Sha256(*bytes) << "\n";
      file.close();
      if (!file || std::rename(object.c_str(), path.c_str()) != 0) status = FileError(path, "cannot be written", errno);
    }
  }
  for (const std::string& file : {part, code, object, log}) unlink(file.c_str());
  return status;
}

absl::StatusOr<KernelFunction> Open(const std::string& path) {
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return absl::InternalError(absl::StrCat("kernel ", path, " cannot be loaded: ", dlerror()));
  void* const function = dlsym(library, "lego_kernel");
  if (function == nullptr) return absl::InternalError(absl::StrCat("kernel ", path, " has no function: ", dlerror()));
  return reinterpret_cast<KernelFunction>(function);
}

struct Place {
  KernelCompiler compiler;
  std::string folder, built_by;
  std::string PathOf(const std::string& source) const {
    return absl::StrCat(folder, "/", checkpoint::Sha256(absl::StrCat(built_by, "\n", source)).substr(0, 32), ".so");
  }
};

absl::StatusOr<Place> FindPlace() {
  Place place;
  ASSIGN_OR_RETURN(place.folder, Folder());
  ASSIGN_OR_RETURN(place.compiler, FindKernelCompiler());
  place.built_by = BuiltBy(place.compiler);
  return place;
}

// Whether a kernel lies at `path`; notes why not, where something does.
absl::StatusOr<bool> IsThere(const Place& place, const std::string& path, std::vector<std::string>* notes) {
  if (access(path.c_str(), F_OK) != 0) return false;
  ASSIGN_OR_RETURN(const std::string bytes, checkpoint::ReadFile(path));
  const std::string fault = Fault(bytes, place.built_by);
  if (fault.empty()) return true;
  notes->push_back(absl::StrCat("kernel ", path, " is built again: ", fault));
  return false;
}

}  // namespace

absl::StatusOr<KernelCompiler> FindKernelCompiler() {
  static Mutex mutex;
  static auto* const known = new std::map<std::string, KernelCompiler>();  // by path; a compiler does not change under a process
  const std::string named = Variable("LEGOAI_CXX");
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
  ASSIGN_OR_RETURN(const std::string folder, Folder());
  ASSIGN_OR_RETURN(const KernelCompiler compiler, AskCompiler(path, folder));
  return known->emplace(path, compiler).first->second;
}

absl::StatusOr<std::string> KernelPath(const std::string& source) {
  ASSIGN_OR_RETURN(const Place place, FindPlace());
  return place.PathOf(source);
}

absl::StatusOr<std::string> KernelsAreBuiltBy() {
  ASSIGN_OR_RETURN(const KernelCompiler compiler, FindKernelCompiler());
  return BuiltBy(compiler);
}

absl::StatusOr<KernelFunction> LoadKernel(const std::string& source, KernelCounts* counts, std::vector<std::string>* notes,
                                          const GoesOn& goes_on) {
  ASSIGN_OR_RETURN(const Place place, FindPlace());
  const std::string path = place.PathOf(source);
  std::vector<std::string> first;
  ASSIGN_OR_RETURN(bool is_there, IsThere(place, path, &first));
  if (is_there) {
    ++counts->loaded;
    return Open(path);
  }
  CompileLock lock;
  RETURN_IF_ERROR(lock.Take(place.folder, goes_on));
  if (goes_on) goes_on();
  ASSIGN_OR_RETURN(is_there, IsThere(place, path, notes));
  if (is_there) {
    ++counts->loaded;
    return Open(path);
  }
  const auto start = std::chrono::steady_clock::now();
  RemoveOldParts(place.folder);
  RETURN_IF_ERROR(Compile(place.compiler, source, place.built_by, path));
  counts->seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  ++counts->compiled;
  return Open(path);
}

}  // namespace legoai::graph
