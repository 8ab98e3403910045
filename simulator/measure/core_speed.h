// How fast this CPU's cores are, in a few numbers, measured in less than a second: to tell what a benchmark will take before it
// is begun. No step time is made of them.
#pragma once

#include "absl/status/statusor.h"
#include "proto/legoai/v1/dtype.pb.h"

namespace legoai::sim {

// Of one core while the others do the same, in the time that it gives to this process: a busy machine does not make a type look
// slow.
struct CoreSpeed {
  v1::DType dtype = v1::FLOAT32;
  double flops_per_second = 1;          // of matrix products in `dtype`
  double float32_flops_per_second = 1;  // the same in float32
  double bytes_per_second = 1;          // read and written by an elementwise operator
};

// Forks (core_processes.h); blocking. `dtype`: FLOAT32, BFLOAT16 or FLOAT16. Errors: Internal.
absl::StatusOr<CoreSpeed> MeasureCoreSpeed(v1::DType dtype, int64_t busy_cores);

}  // namespace legoai::sim
