// The processors and the memory of this machine, as far as this process may use them. Linux. Thread-safety: pure reads of the
// affinity, /sys and /proc.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace legoai::launch {

// Processors: ranks are pinned to them, and a job on this machine is planned for them.

// Numbers of the processors of this process's affinity: first one thread of every physical core, then the second ones, and so on,
// each in ascending order. The first n are on n cores as long as there are n. Never empty: without an affinity, all online ones.
std::vector<int> AllowedCpus();

// Physical cores of these processors, threads of one core counted once; fewer where the control group's CPU quota is less, of
// which whole cores count. At least 1.
int64_t AllowedCores();

// The same for any processors on the machine whose /sys and /proc are below `root` ("" is this one). A processor of which nothing
// is known is a core of its own.
std::vector<int> CoresFirst(const std::vector<int>& cpus, const std::string& root);
int64_t CountCores(const std::vector<int>& cpus, const std::string& root);

// The numbers in a list as the kernel writes it, "0-3,8"; empty where it is no such list.
std::vector<int> ParseCpuList(const std::string& list);

// Memory: what there is, and what is in use.

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
