// The link between two ranks of this machine, as a trainer's communicator sees it: Gloo between two processes on cores of their
// own, its threads' hand-overs and its copies included.
#pragma once

#include "absl/status/statusor.h"
#include "proto/legoai/v1/hardware.pb.h"

namespace legoai::sim {

// Latency and bandwidth of one hop of a ring, from all-gathers of 1 KiB and 4 MiB. Errors: Unavailable on a machine too busy to
// tell one from the other. Forks (core_processes.h). Takes a second.
absl::StatusOr<v1::Link> MeasureNodeLink();

}  // namespace legoai::sim
