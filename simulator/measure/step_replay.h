// Executes a captured step on real tensors in this process alone, and times each of its operators where it stands: with the
// caches as the operators before it left them, and with memory freshly allocated where a step allocates it.
//
// Inputs are small random numbers (token ids and counters are zero), other ranks are played by copies of this one, and
// communication runs where it is dispatched. Not part of the times: autograd and the model's own code (eager_overhead.h).
// Needs the step's memory; takes as many times the step as there are replays. Not thread-safe: the process has one Runtime.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/trace/trace.h"
#include "proto/legoai/v1/hardware.pb.h"

namespace legoai::sim {

struct Replays {
  int warm_up = 2, timed = 5;
  int all() const { return warm_up + timed; }
};

// `rank`: whose step it is. Seconds by instruction (TypicalSeconds); 0 for views and what is no operator. `done`, if given, grows
// while operators are carried out, by the number of instructions in each replay, for others to read. Errors: Internal, naming the
// operator that failed.
absl::StatusOr<std::vector<double>> ReplayStep(const graph::Trace& trace, int64_t rank, Replays replays = {},
                                               std::atomic<int64_t>* done = nullptr);

// Of some runs of a step, seconds by instruction: the mean over the half of the runs whose whole time is in the middle. So they
// add up to a typical run, and a run that another process slowed does not count. Medians by instruction would add up to less:
// what takes long now and then (a cache miss, a page, an interrupt) takes it at another place each time. `runs` is not empty.
std::vector<double> TypicalSeconds(std::vector<std::vector<double>> runs);

// What the operators of a training step reach of this CPU's peaks, by class: the step of a small Llama replayed on every core
// (operator_benchmark.h), beside the roofline of the same operators with nothing lost.
//
// Operators of large matrices alone would promise too much: a step's products have three shapes for each weight, one for each
// pass, and its results lie in memory that was just allocated. Forks (core_processes.h). Blocking; keeps the cores busy.

// Replaces device->efficiencies() by those measured, with `source`: one for each class, and for bfloat16 those of the classes
// that compute in it. The device's peaks and bandwidth must be measured already. Errors: those of BenchmarkOperators.
absl::Status MeasureEfficiencies(int64_t busy_cores, const std::string& source, v1::Device* device);

}  // namespace legoai::sim
