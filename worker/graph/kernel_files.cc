#include "worker/graph/kernel_files.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "core/checkpoint/files.h"
#include "proto/errors.h"
#include "proto/status.h"

namespace legoai::graph {
namespace {

namespace fs = std::filesystem;

constexpr char kTrailer[] = "\nlegoai-kernel-1\n";  // then what it was built by, and the digest of the bytes before it

// Files that a process which was killed left behind.
void RemoveOldParts(const std::string& folder) {
  std::error_code error;
  const auto old = fs::file_time_type::clock::now() - std::chrono::hours(24);
  for (fs::directory_iterator file(folder, error), end; !error && file != end; file.increment(error)) {
    const std::string name = file->path().filename();
    std::error_code gone;  // another process may remove it as well
    if (!absl::StartsWith(name, "version.") && !absl::StrContains(name, ".so.") && !absl::StrContains(name, ".cubin.")) continue;
    if (file->last_write_time(gone) < old && !gone) fs::remove(file->path(), gone);
  }
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

// Whether a whole kernel lies at `path`; notes why not, where something does.
absl::StatusOr<bool> IsThere(const KernelBuilder& builder, const std::string& path, std::vector<std::string>* notes) {
  if (access(path.c_str(), F_OK) != 0) return false;
  ASSIGN_OR_RETURN(const std::string bytes, checkpoint::ReadFile(path));
  const std::string fault = Fault(bytes, builder.built_by);
  if (fault.empty()) return true;
  notes->push_back(absl::StrCat("kernel ", path, " is built again: ", fault));
  return false;
}

absl::Status Seal(const std::string& part, const std::string& built_by, const std::string& path) {
  ASSIGN_OR_RETURN(const std::string bytes, checkpoint::ReadFile(part));
  std::ofstream file(part, std::ios::binary | std::ios::app);
  file << kTrailer << built_by << "\n" << checkpoint::Sha256(bytes) << "\n";
  file.close();
  if (!file || std::rename(part.c_str(), path.c_str()) != 0) return FileError(path, "cannot be written", errno);
  return absl::OkStatus();
}

absl::Status Build(const KernelBuilder& builder, const std::string& source, const std::string& path) {
  ASSIGN_OR_RETURN(const std::string part, NewKernelPart(path));
  absl::Status status = builder.build(source, part);
  if (status.ok()) status = Seal(part, builder.built_by, path);
  if (!status.ok()) unlink(part.c_str());
  return status;
}

}  // namespace

absl::StatusOr<std::string> KernelFolder() {
  std::string folder = EnvironmentOf("LEGOAI_KERNEL_CACHE");
  if (folder.empty()) {
    std::string cache = EnvironmentOf("XDG_CACHE_HOME");
    if (cache.empty() && EnvironmentOf("HOME").empty())
      return FieldError("LEGOAI_KERNEL_CACHE", "", "name a folder for compiled kernels: there is no HOME");
    if (cache.empty()) cache = EnvironmentOf("HOME") + "/.cache";
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

absl::StatusOr<std::string> NewKernelPart(const std::string& path) {
  std::string name = path + ".XXXXXX";
  const int file = mkostemp(name.data(), O_CLOEXEC);
  if (file < 0) return FileError(name, "cannot be made", errno);
  close(file);
  return name;
}

std::string KernelPathIn(const std::string& folder, const KernelBuilder& builder, const std::string& source) {
  const std::string digest = checkpoint::Sha256(absl::StrCat(builder.built_by, "\n", source)).substr(0, 32);
  return absl::StrCat(folder, "/", digest, builder.suffix);
}

absl::StatusOr<std::string> BuiltKernel(const KernelBuilder& builder, const std::string& source, KernelCounts* counts,
                                        std::vector<std::string>* notes, const GoesOn& goes_on) {
  ASSIGN_OR_RETURN(const std::string folder, KernelFolder());
  const std::string path = KernelPathIn(folder, builder, source);
  std::vector<std::string> first;
  ASSIGN_OR_RETURN(bool is_there, IsThere(builder, path, &first));
  CompileLock lock;
  if (!is_there) {
    RETURN_IF_ERROR(lock.Take(folder, goes_on));
    if (goes_on) goes_on();
    ASSIGN_OR_RETURN(is_there, IsThere(builder, path, notes));
  }
  if (is_there) {
    ++counts->loaded;
    return path;
  }
  const auto start = std::chrono::steady_clock::now();
  RemoveOldParts(folder);
  RETURN_IF_ERROR(Build(builder, source, path));
  counts->seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  ++counts->compiled;
  return path;
}

absl::StatusOr<std::string> ReadBuiltKernel(const KernelBuilder& builder, const std::string& path) {
  ASSIGN_OR_RETURN(std::string bytes, checkpoint::ReadFile(path));
  const std::string fault = Fault(bytes, builder.built_by);
  if (!fault.empty()) return absl::DataLossError(absl::StrCat("kernel ", path, " changed while it was read: ", fault));
  bytes.resize(bytes.rfind(kTrailer));
  return bytes;
}

std::string ShortOutput(std::string text) {
  constexpr size_t kMost = 2000;
  if (text.size() > kMost) text = absl::StrCat(text.substr(0, kMost), "...");
  return std::string(absl::StripAsciiWhitespace(text));
}

std::string EnvironmentOf(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

}  // namespace legoai::graph
