// CRC-32C (Castagnoli), the checksum of checkpoint chunks. Thread-safety: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>

namespace legoai::checkpoint {

// The checksum of `bytes` bytes that follow data whose checksum is `crc` (0: nothing precedes them), so that
// Crc32c(b, Crc32c(a)) is the checksum of a and b together.
uint32_t Crc32c(const void* data, size_t bytes, uint32_t crc = 0);

}  // namespace legoai::checkpoint
