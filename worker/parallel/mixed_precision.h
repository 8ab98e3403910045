// Mixed precision (Micikevicius et al. 2018): parameters and compute in one type, gradients reduced in another; the optimizer's
// copy of a parameter (its master) and its state are always fp32.
//
// Activations follow the parameters: a bf16 embedding gives bf16 activations. The loss casts the logits to fp32.
#pragma once

#include <c10/core/ScalarType.h>

#include "absl/status/statusor.h"
#include "proto/legoai/v1/recipe.pb.h"

namespace legoai::parallel {

struct Precision {
  c10::ScalarType param = c10::ScalarType::Float;   // Parameter::value, activations, and the gradients autograd makes
  c10::ScalarType reduce = c10::ScalarType::Float;  // gradients while they are summed over ranks and microbatches
};

// From training.mixed_precision_param and training.mixed_precision_reduce; an unset field takes its default.
// Errors: InvalidArgument, by field, for a type other than float32 and bfloat16.
absl::StatusOr<Precision> PrecisionOf(const v1::Training& training);

}  // namespace legoai::parallel
