#include "server/store/file_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "proto/errors.h"

namespace legoai::store {
namespace {

// The first line: who holds the lock. The second: that a store was made.
constexpr std::string_view kMade = "made";

std::vector<std::string> Lines(int descriptor) {
  char text[64];
  const ssize_t read = pread(descriptor, text, sizeof(text), 0);
  return absl::StrSplit(absl::string_view(text, static_cast<size_t>(std::max<ssize_t>(read, 0))), '\n');
}

// "process 4711", as the one that holds the lock wrote it there.
std::string Holder(int descriptor) {
  int pid = 0;
  return absl::SimpleAtoi(Lines(descriptor)[0], &pid) ? absl::StrCat("process ", pid) : "another process";
}

// In the same few bytes each time, or some more once a store was made: a full disk takes that, too, as they lie in one block.
void Note(int descriptor, bool made) {
  const std::string text = absl::StrFormat("%-10d\n%s", getpid(), made ? absl::StrCat(std::string(kMade), "\n") : "");
  if (pwrite(descriptor, text.data(), text.size(), 0) != static_cast<ssize_t>(text.size())) return;  // then nobody is told
  [[maybe_unused]] const int cut = ftruncate(descriptor, static_cast<off_t>(text.size()));
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
  const std::vector<std::string> lines = Lines(descriptor);
  lock.made_ = lines.size() > 1 && lines[1] == kMade;
  Note(descriptor, lock.made_);
  return lock;
}

void FileLock::NoteMade() {
  if (made_) return;
  made_ = true;
  Note(descriptor_, made_);
}

FileLock::~FileLock() {
  if (descriptor_ >= 0) close(descriptor_);
}

}  // namespace legoai::store
