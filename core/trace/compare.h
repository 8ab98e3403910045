// Is one Trace the same program as another? Pure functions.
//
// Two Traces are equal when their instructions have equal signatures (operator, geometries, constants, stream, phase, action;
// Trace::Line without ids), the same module and microbatch, and are wired alike (storage ids, bound names, kinds, categories,
// contents of constants) to the same groups of ranks.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/trace/trace.h"

namespace legoai::graph {

// The first differences, at most `limit` lines; empty: the same program. "- 17 ..." is an instruction (with its index) that only
// `a` has, "+ 17 ..." one that only `b` has, along a longest common subsequence of signatures. Wiring is compared when the
// signatures agree.
std::vector<std::string> Differences(const Trace& a, const Trace& b, int64_t limit = 20);

}  // namespace legoai::graph
