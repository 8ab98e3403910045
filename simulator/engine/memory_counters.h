// Memory of a stage over simulated time, as counters of a trace file.
//
// Allocations of an operator count from its start, its workspace until its end; frees after it take effect at its end. Torch-
// free. Thread-safety: pure functions. Units: bytes, nanoseconds.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "simulator/engine/step_simulation.h"
#include "simulator/memory/memory_simulator.h"

namespace legoai::sim {

struct CounterPoint {
  int64_t nanoseconds = 0, bytes = 0;
};

struct MemoryCounter {
  std::string name;                  // "memory" of all, "memory: activation" of a category
  std::vector<CounterPoint> points;  // where it changes; times never decrease
};

// Total memory first, then each category that is ever nonzero. `stage`: index into the list of stages. `profile` was made with
// MemoryOptions::timeline; the highest point of the first counter is its peak_requested_bytes.
std::vector<MemoryCounter> MemoryCounters(uint32_t stage, const StepSimulation& simulation, const MemoryProfile& profile);

// At most `limit` of the points (at least four): from each bin the first, the lowest, the highest and the last, so that no peak
// is lost (M4, Jugel et al. 2014).
std::vector<CounterPoint> Thinned(const std::vector<CounterPoint>& points, int64_t limit);

}  // namespace legoai::sim
