// How a tensor lies in files: its element type, and hyper-rectangles of row-major tensors, which say what a rank holds of a
// global tensor, with the copying between two such parts (resharding). A scalar has no dimensions and one element. Thread-safety:
// pure functions.
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

// Nothing for a name that LegoAI has no type for ("F8_E4M3").
std::optional<v1::DType> DTypeFromSafetensorsName(std::string_view name);

// Elements [offsets[d], offsets[d] + sizes[d]) of every dimension d of a global tensor.
struct Rectangle {
  std::vector<int64_t> offsets, sizes;
  bool operator==(const Rectangle&) const = default;
};

// All of a tensor.
Rectangle WholeOf(const std::vector<int64_t>& shape);

// More than any memory has; their bytes can still be counted.
inline constexpr int64_t kMaxElements = INT64_MAX / 16;

// Number of elements of sizes that are not negative; kMaxElements where there are more.
int64_t Volume(const std::vector<int64_t>& sizes);

// What two rectangles of one tensor share; nothing if that is empty. Both have the same number of dimensions.
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
