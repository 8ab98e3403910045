// Static checks of a Trace: is it a program whose streams do not race and that reads only what was written? Pure
// functions. Every recorded Trace passes them in tests, and so does every Trace a pass has rewritten.
//
// Happens-before: instructions of one stream are ordered; a wait orders what follows it on its stream after what preceded the
// event's latest record. Each check gives one line per finding, at most `limit`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/trace/trace.h"

namespace legoai::graph {

// Uses of one storage on two streams, one of them a write (or the storage's end), that no event orders; waits for an event that
// nothing has recorded.
std::vector<std::string> Races(const Trace& trace, int64_t limit = 20);

// Reads of memory that no instruction wrote (data put there behind the dispatcher's back) or that is resized away.
std::vector<std::string> BadReads(const Trace& trace, int64_t limit = 20);

}  // namespace legoai::graph
