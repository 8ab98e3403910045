#include "core/checkpoint/tensor_layout.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proto/errors.h"

namespace legoai::checkpoint {
namespace {

struct Row {
  v1::DType dtype;
  std::string_view name;
  int64_t bytes;
};
constexpr Row kRows[] = {
    {v1::FLOAT32, "F32", 4}, {v1::BFLOAT16, "BF16", 2}, {v1::FLOAT16, "F16", 2}, {v1::FLOAT64, "F64", 8}, {v1::INT64, "I64", 8},
    {v1::INT32, "I32", 4},   {v1::UINT8, "U8", 1},      {v1::BOOL, "BOOL", 1},   {v1::INT8, "I8", 1},     {v1::INT16, "I16", 2},
};

const Row* Find(v1::DType dtype) {
  for (const Row& row : kRows)
    if (row.dtype == dtype) return &row;
  return nullptr;
}

// The element of `part`'s index in the dense buffer of `whole`; `index` counts from the corner of `part`.
int64_t Position(const Rectangle& whole, const Rectangle& part, const std::vector<int64_t>& index) {
  int64_t position = 0;
  for (size_t d = 0; d < index.size(); ++d) position = position * whole.sizes[d] + part.offsets[d] - whole.offsets[d] + index[d];
  return position;
}

// Moves to the next index over the first `dimensions` dimensions; false after the last.
bool Next(std::vector<int64_t>& index, const std::vector<int64_t>& sizes, size_t dimensions) {
  for (size_t d = dimensions; d-- > 0;) {
    if (++index[d] < sizes[d]) return true;
    index[d] = 0;
  }
  return false;
}

}  // namespace

int64_t DTypeBytes(v1::DType dtype) {
  const Row* row = Find(dtype);
  return row ? row->bytes : 0;
}

std::string_view SafetensorsName(v1::DType dtype) {
  const Row* row = Find(dtype);
  return row ? row->name : std::string_view();
}

std::optional<v1::DType> DTypeFromSafetensorsName(std::string_view name) {
  for (const Row& row : kRows)
    if (row.name == name) return row.dtype;
  return std::nullopt;
}

Rectangle WholeOf(const std::vector<int64_t>& shape) { return {std::vector<int64_t>(shape.size(), 0), shape}; }

int64_t Volume(const std::vector<int64_t>& sizes) {
  int64_t volume = 1;
  for (int64_t size : sizes) {
    if (size == 0) return 0;
    if (__builtin_mul_overflow(volume, size, &volume) || volume > kMaxElements) volume = kMaxElements;
  }
  return volume;
}

std::optional<Rectangle> Intersect(const Rectangle& a, const Rectangle& b) {
  Rectangle both = a;
  for (size_t d = 0; d < a.sizes.size(); ++d) {
    const int64_t end = std::min(a.offsets[d] + a.sizes[d], b.offsets[d] + b.sizes[d]);
    both.offsets[d] = std::max(a.offsets[d], b.offsets[d]);
    both.sizes[d] = end - both.offsets[d];
    if (both.sizes[d] <= 0) return std::nullopt;
  }
  return both;
}

absl::Status CheckInside(std::string_view tensor, const std::vector<int64_t>& shape, const Rectangle& rectangle) {
  bool inside = rectangle.offsets.size() == shape.size() && rectangle.sizes.size() == shape.size();
  for (size_t d = 0; inside && d < shape.size(); ++d)
    inside = shape[d] >= 0 && rectangle.offsets[d] >= 0 && rectangle.sizes[d] >= 0 &&
             rectangle.offsets[d] <= shape[d] - rectangle.sizes[d];
  if (inside) return absl::OkStatus();
  return FieldError(
      tensor, ToString(rectangle),
      absl::StrCat("not inside the tensor's shape [", absl::StrJoin(shape, ", "), "]; the weights are of another model"));
}

void CopyRectangle(const char* source_data, const Rectangle& source, char* target_data, const Rectangle& target,
                   const Rectangle& part, int64_t element_bytes) {
  if (Volume(part.sizes) == 0) return;
  // The last dimensions that both buffers hold whole lie in one run of bytes, and so does what the next one takes.
  size_t outer = part.sizes.size();
  int64_t run = element_bytes;
  while (outer > 0) {
    --outer;
    run *= part.sizes[outer];
    if (part.sizes[outer] != source.sizes[outer] || part.sizes[outer] != target.sizes[outer]) break;
  }
  std::vector<int64_t> index(part.sizes.size(), 0);
  do {
    std::memcpy(target_data + Position(target, part, index) * element_bytes,
                source_data + Position(source, part, index) * element_bytes, static_cast<size_t>(run));
  } while (Next(index, part.sizes, outer));
}

std::string ToString(const Rectangle& rectangle) {
  return absl::StrCat("[", absl::StrJoin(rectangle.offsets, ", "), "] + [", absl::StrJoin(rectangle.sizes, ", "), "]");
}

}  // namespace legoai::checkpoint
