// A Trace as text in which a change shows as a change: no number of a storage, value or instruction, so that what a pass leaves
// alone reads the same before and after it. Pure function.
#pragma once

#include <string>

#include "core/trace/trace.h"

namespace legoai::graph {

// Inputs and outputs, then a line for each instruction: phase, microbatch, stream, module, and what is called with which tensors.
// A storage that is made in the step is named after what makes it: "%forward0.model.layers.0.mlp.up_proj.mm.2" is the second of
// an aten::mm in that module, phase and microbatch.
std::string DumpText(const Trace& trace);

}  // namespace legoai::graph
