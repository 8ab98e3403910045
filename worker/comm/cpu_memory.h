// Counts the bytes that CPU tensors hold in this process: what the memory simulator predicts (peak_requested_bytes).
// Thread-safe.
#pragma once

#include <cstdint>

namespace legoai::comm {

// Puts a counting allocator in the place of torch's. Call once, before the first tensor; it stays for good.
void InstallCpuMemoryCounter();

// Bytes asked for and not yet freed; 0 without the counter.
int64_t CpuLiveBytes();
// The most since the start, or since the last reset.
int64_t CpuPeakBytes();
void ResetCpuPeakBytes();

}  // namespace legoai::comm
