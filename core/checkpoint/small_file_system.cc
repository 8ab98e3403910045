#include "core/checkpoint/small_file_system.h"

#include <sched.h>
#include <sys/mount.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <fstream>

#include "absl/strings/str_cat.h"

namespace legoai::checkpoint {
namespace {

bool Write(const char* path, const std::string& text) {
  std::ofstream file(path);
  file << text;
  file.close();
  return !file.fail();
}

// In a user namespace files need owners that it knows: this user as itself.
bool EnterOwnNamespaces() {
  const uid_t uid = geteuid();
  const gid_t gid = getegid();
  if (unshare(CLONE_NEWNS) == 0) return true;
  return unshare(CLONE_NEWUSER | CLONE_NEWNS) == 0 && Write("/proc/self/uid_map", absl::StrCat(uid, " ", uid, " 1")) &&
         Write("/proc/self/setgroups", "deny") && Write("/proc/self/gid_map", absl::StrCat(gid, " ", gid, " 1"));
}

}  // namespace

FileSizeLimit::FileSizeLimit(int64_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
  getrlimit(RLIMIT_FSIZE, &before_);
  const rlimit limit = {static_cast<rlim_t>(bytes), before_.rlim_max};
  setrlimit(RLIMIT_FSIZE, &limit);
}

FileSizeLimit::~FileSizeLimit() {
  setrlimit(RLIMIT_FSIZE, &before_);
  std::signal(SIGXFSZ, handler_);
}

absl::Status MountSmallFileSystem(const std::string& path, int64_t bytes) {
  const std::string size = absl::StrCat("size=", bytes);
  if (EnterOwnNamespaces() && mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
      mount("tmpfs", path.c_str(), "tmpfs", 0, size.c_str()) == 0) {
    return absl::OkStatus();
  }
  return absl::PermissionDeniedError(
      absl::StrCat("no file system may be mounted here (", std::strerror(errno), "): allow user namespaces, or run as root"));
}

}  // namespace legoai::checkpoint
