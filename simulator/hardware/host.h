// What this host has: memory, physical cores, and what they are called. Torch-free. Thread-safety: pure reads of /proc and /sys.
#pragma once

#include <cstdint>
#include <string>

namespace legoai::sim {

// Physical memory in bytes, or the limit of this process's control group, or of one above it, where that is smaller.
int64_t HostMemoryBytes();

// The smallest memory limit of the control groups in `text`, as /proc/self/cgroup has them, and of those above them, in the file
// system at `root`, versions 1 and 2; INT64_MAX without one.
int64_t MemoryLimitBytes(const std::string& text, const std::string& root);

// Cores that this process may run on (worker/launch/processors.h); at least 1.
int64_t HostPhysicalCores();

// "AMD EPYC 9654 96-Core Processor", as /proc/cpuinfo has it; "unknown processor".
std::string HostProcessor();

}  // namespace legoai::sim
