// How a tensor is stored in files: its element type, and hyper-rectangles of row-major tensors, which describe the part of a
// global tensor that a rank holds, with copies between two such parts (resharding). A scalar has no dimensions and one element.
// Thread-safety: pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "proto/legoai/v1/dtype.pb.h"

namespace legoai::checkpoint {

// Bytes of one element; 0 for DTYPE_UNSPECIFIED.
int64_t DTypeBytes(v1::DType dtype);

// "F32", "BF16", …; empty for DTYPE_UNSPECIFIED.
std::string_view SafetensorsName(v1::DType dtype);

// Nothing if LegoAI has no type of that name ("F8_E4M3").
std::optional<v1::DType> DTypeFromSafetensorsName(std::string_view name);

// Elements [offsets[d], offsets[d] + sizes[d]) of every dimension d of a global tensor.
struct Rectangle {
  std::vector<int64_t> offsets, sizes;
  bool operator==(const Rectangle&) const = default;
};

// All of a tensor.
Rectangle WholeOf(const std::vector<int64_t>& shape);

// More than any memory holds, but few enough that their bytes fit an int64_t.
inline constexpr int64_t kMaxElements = INT64_MAX / 16;

// Number of elements, at most kMaxElements. Sizes must not be negative.
int64_t Volume(const std::vector<int64_t>& sizes);

// The intersection of two rectangles of one tensor; nothing if it is empty. Both have the same number of dimensions.
std::optional<Rectangle> Intersect(const Rectangle& a, const Rectangle& b);

// Error (field `tensor`) unless the rectangle lies inside a tensor of this shape.
absl::Status CheckInside(std::string_view tensor, const std::vector<int64_t>& shape, const Rectangle& rectangle);

// Copies `part`, which lies inside both, from a buffer that holds `source` to one that holds `target`, each row-major and dense.
// All three are in the coordinates of the global tensor. The buffers do not overlap.
void CopyRectangle(const char* source_data, const Rectangle& source, char* target_data, const Rectangle& target,
                   const Rectangle& part, int64_t element_bytes);

// Offsets and sizes: "[0, 8] + [4, 8]".
std::string ToString(const Rectangle& rectangle);

}  // namespace legoai::checkpoint
