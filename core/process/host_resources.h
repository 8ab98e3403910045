// The processors and the memory of this machine, as far as this process may use them. Linux. Thread-safety: pure reads of the
// affinity, /sys and /proc.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace legoai::launch {

// Processors: ranks are pinned to them, and jobs on this machine are planned for them.

// The processors in this process's affinity: first one thread of every physical core, then the second ones, and so on, each in
// ascending order, so that the first n are on n cores if there are n. Never empty: without an affinity, all online ones.
std::vector<int> AllowedCpus();

// Physical cores of these processors, threads of one core counted once; at most the control group's CPU quota, rounded down to
// whole cores. At least 1.
int64_t AllowedCores();

// The same for any processors on the machine whose /sys and /proc are below `root` ("" is this one). An unknown processor counts
// as a core of its own.
std::vector<int> CoresFirst(const std::vector<int>& cpus, const std::string& root);
int64_t CountCores(const std::vector<int>& cpus, const std::string& root);

// Parses the kernel's list format, "0-3,8"; empty if malformed.
std::vector<int> ParseCpuList(const std::string& list);

// Memory: what there is, and what is in use.

// Physical memory in bytes, or the limit of this process's control group or an ancestor if that is smaller.
int64_t HostMemoryBytes();

// The smallest memory limit of the control groups in `text` (format of /proc/self/cgroup) and of their ancestors, in the file
// system at `root`, versions 1 and 2; INT64_MAX without one.
int64_t MemoryLimitBytes(const std::string& text, const std::string& root);

// How much of HostMemoryBytes() is in use, in bytes: what a new process could not get without swapping.
int64_t HostMemoryUsedBytes();

// The same from texts in the formats of /proc/meminfo and /proc/self/cgroup: the machine's memory that is not available; if a
// control group has a smaller limit, what is charged to that group except inactive file pages (as kubelet's working set). 0 if
// nothing can be read.
int64_t MemoryUsedBytes(const std::string& meminfo, const std::string& groups, const std::string& root);

}  // namespace legoai::launch
