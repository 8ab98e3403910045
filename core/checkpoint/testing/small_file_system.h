// For tests of full disks: a limit on the size of files, a file system of its own of some size, as only this process and its
// children see it, or another user than root, who gets what is kept back for root.
#pragma once

#include <sys/resource.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

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

// Runs `body` in a forked child of this test: whether no expectation failed there, nothing was thrown, and it lived to the end.
bool PassesInChild(const std::function<void()>& body);

// Opens the folders above each path that are closed to others, in a mount namespace of the calling thread and of what it starts.
// Only root may call it. Errors: PermissionDenied with what this machine does not let root do.
absl::Status OpenToOthers(const std::vector<std::filesystem::path>& paths);

// Makes this process the user nobody, without any right of root, who owns `folder` with all that is in it and may read where this
// process runs: folders above both that are closed to others are open in a mount namespace of this process alone. Only root may
// call it, in a process of one thread; it cannot be undone, so call it in a forked child.
// Errors: PermissionDenied with what this machine does not let root do (in a sandbox without other users).
absl::Status BecomeNobody(const std::filesystem::path& folder);

}  // namespace legoai::checkpoint
