// For tests of full disks: a file system of its own of some size, as only this process and its children see it.
//
// Without the right to mount, the process first enters a user namespace in which it has it (Linux lets every user make one unless
// an administrator or a container forbids it). Call it from a process of one thread, a test's forked child where the rest of the
// test must not see it. Torch-free.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"

namespace legoai::checkpoint {

// Errors: PermissionDenied with the reason where this machine lets nobody but the administrator mount.
absl::Status MountSmallFileSystem(const std::string& path, int64_t bytes);

}  // namespace legoai::checkpoint
