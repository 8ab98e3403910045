#include "core/checkpoint/dtypes.h"

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

}  // namespace legoai::checkpoint
