#include "core/checkpoint/testing/small_file_system.h"

#include <grp.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "proto/status.h"

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

namespace fs = std::filesystem;

constexpr uid_t kNobody = 65534;

// Covers `closed` with an open folder that holds its entry `name` alone.
bool Open(const fs::path& closed, const fs::path& name) {
  char stage[] = "/tmp/open-XXXXXX";
  if (mkdtemp(stage) == nullptr) return false;
  const bool covered = mount((closed / name).c_str(), stage, nullptr, MS_BIND | MS_REC, nullptr) == 0 &&
                       mount("tmpfs", closed.c_str(), "tmpfs", 0, "mode=755") == 0 && mkdir((closed / name).c_str(), 0755) == 0 &&
                       mount(stage, (closed / name).c_str(), nullptr, MS_MOVE, nullptr) == 0;
  const int error = errno;
  rmdir(stage);
  errno = error;
  return covered;
}

bool OpenAllAbove(const fs::path& path) {
  fs::path above;
  for (const fs::path& name : path) {
    struct stat facts;
    if (!above.empty() && stat(above.c_str(), &facts) == 0 && (facts.st_mode & S_IXOTH) == 0 && !Open(above, name)) return false;
    above /= name;
  }
  return true;
}

bool GiveAway(const fs::path& folder) {
  if (chown(folder.c_str(), kNobody, kNobody) != 0) return false;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (lchown(entry.path().c_str(), kNobody, kNobody) != 0) return false;
  }
  return true;
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

bool PassesInChild(const std::function<void()>& body) {
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    try {
      body();
    } catch (const std::exception& error) {
      ADD_FAILURE() << error.what();
    }
    std::fflush(nullptr);
    _exit(::testing::Test::HasFailure() ? 1 : 0);
  }
  int status = -1;
  return waitpid(child, &status, 0) == child && status == 0;
}

absl::Status OpenToOthers(const std::vector<fs::path>& paths) {
  const fs::path here = fs::current_path();
  bool open = unshare(CLONE_NEWNS) == 0 && mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0;
  for (const fs::path& path : paths) open = open && OpenAllAbove(fs::canonical(path));
  if (open && chdir(here.c_str()) == 0) return absl::OkStatus();
  return absl::PermissionDeniedError(absl::StrCat("root may not open folders to others here: ", std::strerror(errno)));
}

absl::Status BecomeNobody(const fs::path& folder) {
  RETURN_IF_ERROR(OpenToOthers({fs::current_path(), folder}));
  const bool done = GiveAway(folder) && setgroups(0, nullptr) == 0 && setresgid(kNobody, kNobody, kNobody) == 0 &&
                    setresuid(kNobody, kNobody, kNobody) == 0 &&
                    prctl(PR_SET_DUMPABLE, 1) == 0;  // so that it owns its files in /proc
  if (done) return absl::OkStatus();
  return absl::PermissionDeniedError(absl::StrCat("root may not become another user here: ", std::strerror(errno)));
}

}  // namespace legoai::checkpoint
