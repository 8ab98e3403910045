#include "worker/parallel/mixed_precision.h"

#include <string>

#include "proto/errors.h"
#include "proto/status.h"

namespace legoai::parallel {
namespace {

absl::StatusOr<c10::ScalarType> TypeOf(const char* field, v1::DType dtype) {
  switch (dtype) {
    case v1::FLOAT32: return c10::ScalarType::Float;
    case v1::BFLOAT16: return c10::ScalarType::BFloat16;
    default: return FieldError(field, v1::DType_Name(dtype), "choose float32 or bfloat16");
  }
}

}  // namespace

absl::StatusOr<Precision> PrecisionOf(const v1::Training& training) {
  ASSIGN_OR_RETURN(auto param, TypeOf("training.mixed_precision_param",
                                      training.has_mixed_precision_param() ? training.mixed_precision_param() : v1::BFLOAT16));
  ASSIGN_OR_RETURN(auto reduce, TypeOf("training.mixed_precision_reduce",
                                       training.has_mixed_precision_reduce() ? training.mixed_precision_reduce() : v1::FLOAT32));
  return Precision{param, reduce};
}

}  // namespace legoai::parallel
