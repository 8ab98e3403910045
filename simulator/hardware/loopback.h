// The link between ranks of one host: TCP over the loopback interface, as Gloo uses it. Torch-free.
#pragma once

#include "absl/status/statusor.h"
#include "proto/legoai/v1/hardware.pb.h"

namespace legoai::sim {

// Bandwidth of large messages in one direction and half the round trip of one byte, between two threads. Half a second. Errors:
// Unavailable if no socket can be made.
absl::StatusOr<v1::Link> MeasureLoopback();

}  // namespace legoai::sim
