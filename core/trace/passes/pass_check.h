// What holds of every Trace, and of a Trace before and after a pass. Pure functions: one line per finding, a few of each kind;
// empty: all is well.
#pragma once

#include <string>
#include <vector>

#include "core/trace/trace.h"

namespace legoai::graph {

// Races and bad reads (core/trace/verify.h); tensors that reach beyond their storage; collectives whose two tensors do not fit
// their group; uses of a storage after its free, and second frees.
std::vector<std::string> TraceFindings(const Trace& trace);

// Inputs and outputs are the same, with the same geometries. Collectives are the same and in the same order on each group and
// stream, but for FSDP's streams, which have the same bytes of each group. Of a storage that both have, the same operators
// read and write it, the writes in the same order and the reads between the same ones. No more storages stay at the end. Where
// the pass has fused operators, all others are called in the same order on the same contents instead, and what is bound holds the
// same at the end: the same operators applied to the same contents.
std::vector<std::string> PassFindings(const Trace& before, const Trace& after);

}  // namespace legoai::graph
