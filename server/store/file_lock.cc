#include "server/store/file_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "proto/errors.h"

namespace legoai::store {
namespace {

// "process 4711", as the one that holds the lock wrote it there.
std::string Holder(int descriptor) {
  char text[16] = {};
  int pid = 0;
  if (pread(descriptor, text, sizeof(text) - 1, 0) <= 0 || !absl::SimpleAtoi(absl::StripAsciiWhitespace(text), &pid)) {
    return "another process";
  }
  return absl::StrCat("process ", pid);
}

absl::Status CannotMake(const std::string& path, int error) {
  const bool full = error == ENOSPC || error == EDQUOT;
  return FieldError(
      "store", path,
      absl::StrCat("its lock cannot be made (", std::strerror(error),
                   "): ", full ? "free space on its file system" : "its folder must be there and be writable for this user"),
      full ? absl::StatusCode::kResourceExhausted : absl::StatusCode::kPermissionDenied);
}

}  // namespace

absl::StatusOr<FileLock> FileLock::Take(const std::string& path) {
  const int descriptor = open((path + ".lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (descriptor < 0) return CannotMake(path, errno);
  FileLock lock(descriptor);
  if (flock(descriptor, LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) return CannotMake(path, errno);
    return FieldError("store", path,
                      absl::StrCat(Holder(descriptor), " works with it: end that server first, or name another file"),
                      absl::StatusCode::kFailedPrecondition);
  }
  // For who finds it locked. On a full disk it is left out.
  if (ftruncate(descriptor, 0) == 0) dprintf(descriptor, "%d\n", static_cast<int>(getpid()));
  return lock;
}

FileLock::~FileLock() {
  if (descriptor_ >= 0) close(descriptor_);
}

}  // namespace legoai::store
