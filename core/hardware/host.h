// What this host has to compute with: physical cores, and what they are called. Torch-free. Thread-safety: pure reads of /proc
// and /sys.
#pragma once

#include <cstdint>
#include <string>

namespace legoai::sim {

// Cores that this process may run on (core/process/processors.h); at least 1.
int64_t HostPhysicalCores();

// "AMD EPYC 9654 96-Core Processor", as /proc/cpuinfo has it; "unknown processor".
std::string HostProcessor();

}  // namespace legoai::sim
