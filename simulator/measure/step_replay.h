// Executes a captured step on real tensors in this process alone and times each operator in place: with the caches as the
// preceding operators left them, and with freshly allocated memory where a step allocates it.
//
// Inputs are small random numbers (token ids and counters are zero), other ranks are copies of this one, and communication runs
// where it is dispatched. Times exclude autograd and the model's own code (eager_overhead.h). Needs the step's memory; takes one
// step time per replay. Not thread-safe: the process has one Runtime.
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

// `rank`: whose step it is. Returns seconds by instruction (TypicalSeconds); 0 for views and non-operators. `done`, if given,
// counts executed instructions over all replays, for others to read. Errors: Internal, naming the operator that failed.
absl::StatusOr<std::vector<double>> ReplayStep(const graph::Trace& trace, int64_t rank, Replays replays = {},
                                               std::atomic<int64_t>* done = nullptr);

// Seconds by instruction from several runs of a step: the mean over the runs whose total time is in the middle half. They add up
// to a typical run, and a run slowed by another process does not count. Medians by instruction would add up to less, because
// occasional delays (cache misses, page faults, interrupts) hit another instruction each time. `runs` is not empty.
std::vector<double> TypicalSeconds(std::vector<std::vector<double>> runs);

// The efficiencies of a training step's operators on this CPU, by class: the step of a small Llama replayed on every core
// (operator_benchmark.h), relative to the ideal roofline of the same operators.
//
// Large matrix products alone would be too optimistic: a step's products have three shapes per weight, one per pass, and its
// results lie in freshly allocated memory. Forks (core_processes.h). Blocking; keeps the cores busy.

// Replaces device->efficiencies() by measured ones, with `source`: one per class, and for bfloat16 those of the classes that
// compute in it. The device's peaks and bandwidth must be measured already. Errors: those of BenchmarkOperators.
absl::Status MeasureEfficiencies(int64_t busy_cores, const std::string& source, v1::Device* device);

}  // namespace legoai::sim
