// For tests of full disks: a limit on the size of files, or a file system of its own of some size, as only this process and its
// children see it. Torch-free.
#pragma once

#include <sys/resource.h>

#include <cstdint>
#include <string>

#include "absl/status/status.h"

namespace legoai::checkpoint {

// While it lives, a write that would make a file larger fails as on a full disk. Holds for all of the process and for what it
// starts meanwhile.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(int64_t bytes);
  ~FileSizeLimit();
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;

 private:
  rlimit before_;
  void (*handler_)(int);  // of the signal that such a write would end the process with
};

// Without the right to mount, the process first enters a user namespace in which it has it (Linux lets every user make one unless
// an administrator or a container forbids it). Call it from a process of one thread, a test's forked child where the rest of the
// test must not see it. Errors: PermissionDenied with the reason where this machine lets nobody but the administrator mount.
absl::Status MountSmallFileSystem(const std::string& path, int64_t bytes);

}  // namespace legoai::checkpoint
