#include "core/checkpoint/crc32c.h"

#include <isa-l/crc.h>

#include <algorithm>

namespace legoai::checkpoint {

uint32_t Crc32c(const void* data, size_t bytes, uint32_t crc) {
  constexpr size_t kPiece = size_t{1} << 30;  // the library counts in int
  // The library asks for a mutable pointer and does not write. It leaves the inversions at both ends to the caller.
  auto* at = const_cast<unsigned char*>(static_cast<const unsigned char*>(data));
  uint32_t state = ~crc;
  while (bytes > 0) {
    const size_t piece = std::min(bytes, kPiece);
    state = crc32_iscsi(at, static_cast<int>(piece), state);
    at += piece;
    bytes -= piece;
  }
  return ~state;
}

}  // namespace legoai::checkpoint
