// Memory of this machine: what there is, and what is in use. Thread-safety: pure reads of /proc and /sys.
#pragma once

#include <cstdint>
#include <string>

namespace legoai::launch {

// Physical memory in bytes, or the limit of this process's control group, or of one above it, where that is smaller.
int64_t HostMemoryBytes();

// The smallest memory limit of the control groups in `text`, as /proc/self/cgroup has them, and of those above them, in the file
// system at `root`, versions 1 and 2; INT64_MAX without one.
int64_t MemoryLimitBytes(const std::string& text, const std::string& root);

// What of HostMemoryBytes() is in use, in bytes: what a new process could not have without swapping.
int64_t HostMemoryUsedBytes();

// The same from texts as /proc/meminfo and /proc/self/cgroup have them: what is not available of the machine's memory; where a
// control group has a smaller limit, what is charged to that group but for files that it has not used lately (as kubelet's
// working set). 0 where nothing can be read.
int64_t MemoryUsedBytes(const std::string& meminfo, const std::string& groups, const std::string& root);

}  // namespace legoai::launch
