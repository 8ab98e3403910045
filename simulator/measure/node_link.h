// The link between two ranks of this machine, as a trainer's communicator sees it: Gloo between two processes on separate cores,
// thread hand-offs and copies included.
#pragma once

#include "absl/status/statusor.h"
#include "proto/legoai/v1/hardware.pb.h"

namespace legoai::sim {

// Latency and bandwidth of one hop of a ring, from all-gathers of 1 KiB and 4 MiB. Errors: Unavailable if the machine is too busy
// to tell the two apart. Forks (core_processes.h). Takes a second.
absl::StatusOr<v1::Link> MeasureNodeLink();

}  // namespace legoai::sim
