// What ranks that run Traces of their own must agree on: which collectives they call in each group. Pure functions.
#pragma once

#include <cstdint>
#include <vector>

#include "core/trace/trace.h"

namespace legoai::graph {

// By group of the Trace: a digest of the sequence of its collectives, stream by stream, with data type, size and whatever else
// must be the same on all ranks of the group. Ranks that differ wait for each other for ever, or mix up each other's data.
// Messages are not in it: the two ends of one differ. The same in every process and on every machine.
std::vector<uint64_t> CollectiveDigests(const Trace& trace);

}  // namespace legoai::graph
