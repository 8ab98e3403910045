// The buffer through which the hops of asynchronous tensor parallel go on GPUs that reach each other's memory
// (worker/comm/cuda/symmetric_ring.h): of a rank, in the group of tensor parallel. The memory simulator counts it.
#pragma once

#include <cstdint>

namespace legoai::comm {

// One slot is filled by the rank before while the other is emptied. A full one takes 37 microseconds at the 450 GB/s of NVLink 4.
// Assumption, not measured: to start a copy and to count it takes a few, so that larger slots would gain little.
inline constexpr int64_t kSymmetricSlots = 2, kSymmetricSlotBytes = int64_t{16} << 20;

// Counters behind the slots, each on a line of its own.
inline constexpr int64_t kSymmetricLineBytes = 256, kSymmetricLines = 2;
inline constexpr int64_t kSymmetricBufferBytes = kSymmetricSlots * kSymmetricSlotBytes + kSymmetricLines * kSymmetricLineBytes;

// What a device has less for tensors: the driver allocates granules of 2 MiB, the last of which has the counters and PyTorch's
// own signal pad.
inline constexpr int64_t kSymmetricDeviceBytes = kSymmetricSlots * kSymmetricSlotBytes + (int64_t{2} << 20);

}  // namespace legoai::comm
