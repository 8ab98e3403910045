// Static checks of Traces: no races between streams, no reads of unwritten memory, and equality of two programs. Pure functions.
// In tests every recorded Trace passes the first two, as does every Trace rewritten by a pass. Each check returns one line per
// finding, at most `limit`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/trace/trace.h"

namespace legoai::graph {

// Happens-before: instructions of one stream are ordered; a wait orders what follows it on its stream after what preceded the
// event's latest record.

// Uses of the same bytes of a storage on two streams, one of them a write (or its free), that no event orders; waits for an event
// that was never recorded. A tensor that is not dense counts with the gaps in it.
std::vector<std::string> Races(const Trace& trace, int64_t limit = 20);

// Reads of memory that no instruction wrote (data put there behind the dispatcher's back) or that is resized away.
std::vector<std::string> BadReads(const Trace& trace, int64_t limit = 20);

// Two Traces are equal when their instructions have equal signatures (operator, geometries, constants, stream, phase, action;
// Trace::Line without ids), the same module and microbatch, and are wired alike (storage ids, bound names, kinds, categories,
// contents of constants) to the same groups of ranks.

// The first differences, at most `limit` lines; empty: the same program. "- 17 ..." is an instruction (with its index) that only
// `a` has, "+ 17 ..." one that only `b` has, along a longest common subsequence of signatures. Wiring is compared when the
// signatures agree.
std::vector<std::string> Differences(const Trace& a, const Trace& b, int64_t limit = 20);

}  // namespace legoai::graph
