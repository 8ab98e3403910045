// What the operators of a training step reach of this CPU's peaks, by class: the step of a small Llama replayed on every core
// (operator_benchmark.h), beside the roofline of the same operators with nothing lost.
//
// Operators of large matrices alone would promise too much: a step's products have three shapes for each weight, one for each
// pass, and its results lie in memory that was just allocated. Forks (core_processes.h). Blocking; keeps the cores busy.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "proto/legoai/v1/hardware.pb.h"

namespace legoai::sim {

// Replaces device->efficiencies() by those measured, with `source`: one for each class, and for bfloat16 those of the classes
// that compute in it. The device's peaks and bandwidth must be measured already. Errors: those of BenchmarkOperators.
absl::Status MeasureEfficiencies(int64_t busy_cores, const std::string& source, v1::Device* device);

}  // namespace legoai::sim
