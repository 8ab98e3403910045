// From a Trace of two levels to one of one level: what a recorder would have written of the whole step, index by index. For
// checks and comparisons, for what runs a step, and for passes that cross the borders of templates. Pure function.
#pragma once

#include "core/trace/instances.h"
#include "core/trace/trace.h"

namespace legoai::graph {

// `instances` of `trace`; its bindings have what its parts use.
Trace Flatten(const Trace& trace, const Instances& instances);

}  // namespace legoai::graph
