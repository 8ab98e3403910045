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
// read and write it, the writes in the same order and the reads between the same ones. No more storages stay at the end.
std::vector<std::string> PassFindings(const Trace& before, const Trace& after);

}  // namespace legoai::graph
