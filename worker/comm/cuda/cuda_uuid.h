// A GPU's UUID as text.
#pragma once

#include <cuda_runtime.h>

#include <cstdio>
#include <string>

namespace legoai::comm {

// As NVML writes it: the bytes in hexadecimal, with hyphens after 4, 6, 8 and 10 of them.
inline std::string UuidText(const cudaUUID_t& uuid) {
  std::string text = "GPU-";
  for (size_t i = 0; i < sizeof(uuid.bytes); ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    char digits[3];
    std::snprintf(digits, sizeof(digits), "%02x", static_cast<unsigned>(static_cast<unsigned char>(uuid.bytes[i])));
    text += digits;
  }
  return text;
}

}  // namespace legoai::comm
