// This machine's CPU as a Device (`lego hardware --measure`).
//
// Numbers are those of one core while all physical cores do the same, each with one pinned single-threaded process. Peaks are
// those of large matrix products, the bandwidth is the best of any large operator, and efficiencies are the shares of these that
// the operators of a training step reach (step_replay.h). Takes about ten seconds. `measured_while_busy` is the share of the
// processors that other processes took meanwhile.
#pragma once

#include "absl/status/statusor.h"
#include "proto/legoai/v1/hardware.pb.h"

namespace legoai::sim {

// Must be called from a single-threaded process (it forks). Blocking; keeps all cores busy. Errors: those of what it measures.
absl::StatusOr<v1::Device> MeasureHost();

// The link between two ranks of this machine, as a trainer's communicator sees it: Gloo between two processes on separate cores,
// thread hand-offs and copies included.
//
// Latency and bandwidth of one hop of a ring, from all-gathers of 1 KiB and 4 MiB. Errors: Unavailable if the machine is too busy
// to tell the two apart. Forks (core_processes.h). Takes a second.
absl::StatusOr<v1::Link> MeasureNodeLink();

}  // namespace legoai::sim
