// What this host has: memory and physical cores. Torch-free. Thread-safety: pure reads of /proc and /sys.
#pragma once

#include <cstdint>

namespace legoai::sim {

// Physical memory in bytes, or the limit of this process's control group where that is smaller.
int64_t HostMemoryBytes();

// Cores that this process may run on (worker/launch/processors.h); at least 1.
int64_t HostPhysicalCores();

}  // namespace legoai::sim
