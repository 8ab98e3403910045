// This machine's CPU as a Device (`lego hardware --measure`).
//
// Numbers are those of one core while all physical cores do the same: a process for each, pinned, with one thread. Peaks are
// what large matrix products reach and the bandwidth is the best that any large operator reaches; the efficiencies are what the
// operators of a training step reach of them (step_replay.h). Takes about ten seconds. What others took of the processors
// meanwhile is in `measured_while_busy`.
#pragma once

#include "absl/status/statusor.h"
#include "proto/legoai/v1/hardware.pb.h"

namespace legoai::sim {

// Must be called from a process of one thread (it forks). Blocking; keeps all cores busy. Errors: those of what it measures.
absl::StatusOr<v1::Device> MeasureHost();

}  // namespace legoai::sim
