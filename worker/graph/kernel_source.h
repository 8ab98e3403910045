// The C++ of a fused kernel (core/trace/fused_kernel.h): one function that computes a range of its loop.
//
//   extern "C" void lego_kernel(void* const* tensors, long begin, long end);
//
// `tensors`: the first elements of inputs, written tensors and results, in that order. Where the loop has one dimension and no
// statement looks along rows, [begin, end) are elements; otherwise rows, the last dimension of which is one. Whatever the range,
// an element's value is the same: loops are vectorized without changing the order of any sum (rows are summed in sixteen parts,
// as worker/model/rms_norm_kernels.cc does), and exp is a polynomial that is accurate to 2 units in the last place.
//
// The text includes no header and is the same for equal kernels. Pure functions.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "core/trace/fused_kernel.h"

namespace legoai::graph {

// Whether a range counts elements, not rows.
bool RangesOverElements(const FusedKernel& kernel);
// What a range over the whole kernel ends at.
int64_t RangeEnd(const FusedKernel& kernel);

// Errors: Unimplemented naming a statement that has no C++ here.
absl::StatusOr<std::string> SourceOf(const FusedKernel& kernel);

}  // namespace legoai::graph
