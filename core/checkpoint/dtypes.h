// Element types in files: their widths and the names that safetensors gives them. Thread-safety: pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "proto/legoai/v1/dtype.pb.h"

namespace legoai::checkpoint {

// Bytes of one element; 0 for DTYPE_UNSPECIFIED.
int64_t DTypeBytes(v1::DType dtype);

// "F32", "BF16", …; empty for DTYPE_UNSPECIFIED.
std::string_view SafetensorsName(v1::DType dtype);

// Nothing for a name that LegoAI has no type for ("F8_E4M3").
std::optional<v1::DType> DTypeFromSafetensorsName(std::string_view name);

}  // namespace legoai::checkpoint
