// The modules of a stage's compute stream as nested slices: a phase, in it its modules, in them theirs.
//
// Torch-free. Thread-safety: a pure function. Units: nanoseconds.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "simulator/engine/step_simulation.h"
#include "simulator/engine/trace_spans.h"

namespace legoai::sim {

struct ModuleSlice {
  std::string name;    // "forward of microbatch 0", "recompute", or the module's last part: "layers.3", "q_proj"
  std::string module;  // full path; empty for a phase
  graph::Phase phase = graph::Phase::kInit;
  int64_t start = 0, finish = 0;
};

// From the first operator of each to its last; an outer slice comes before what is in it. Spans that are not drawn have no
// modules.
std::vector<ModuleSlice> ModuleSlices(uint32_t stage, const StageTrace& trace, const StepSimulation& simulation,
                                      const TraceSpans& spans);

}  // namespace legoai::sim
