// Writes what the simulator says as a Chrome trace (JSON object format; Perfetto and chrome://tracing read it).
//
// One process for each pipeline stage, one thread for each stream, a complete event ("X") for each task, a counter ("C") of live
// memory by category. Times are microseconds of simulated time. Torch-free. Thread-safety: pure functions but for the file.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "simulator/engine/step_simulation.h"
#include "simulator/memory/memory_simulator.h"

namespace legoai::sim {

// `memory`: one profile for each stage, made with MemoryOptions::timeline, or none at all.
std::string ChromeTrace(const std::vector<StageTrace>& stages, const StepSimulation& simulation,
                        const std::vector<MemoryProfile>& memory);

// Only the counters of memory: the memory timeline of each stage.
std::string MemoryTimeline(const std::vector<StageTrace>& stages, const StepSimulation& simulation,
                           const std::vector<MemoryProfile>& memory);

// Errors: FieldError of `field` if the file cannot be written.
absl::Status WriteTextFile(const std::string& field, const std::string& path, const std::string& text);

}  // namespace legoai::sim
