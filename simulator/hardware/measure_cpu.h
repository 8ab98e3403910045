// This machine's processor as a Device: what one core reaches while all are busy, one rank of one thread on each.
//
// Matrix products, attention, streaming, reductions, copies and the fused optimizer run with LibTorch on every core at once; the
// link between ranks is TCP over the loopback interface. Takes a few seconds. Errors: Unavailable if a socket cannot be made.
// Not thread-safe: it keeps all cores busy.
#pragma once

#include "absl/status/statusor.h"
#include "proto/legoai/v1/hardware.pb.h"

namespace legoai::sim {

absl::StatusOr<v1::Device> MeasureCpu();

}  // namespace legoai::sim
