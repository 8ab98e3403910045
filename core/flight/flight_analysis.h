// Analysis of all ranks' flight records: which collective or message is stuck, and which ranks are to blame. Thread-safety: a
// pure function.
//
// Verdicts have the names of PyTorch's analyzer. Two kinds of faults are looked for. Ranks that entered a different operation
// under the same sequence number (type, sizes, dtype): those that differ from the majority are to blame. And ranks that have not
// entered what others are inside of ("collective_state_mismatch"): a rank that is missing because it waits itself, in another
// group or for a message, is not to blame; the chain of waits is followed to a rank that waits for nobody, or has left no dump
// ("undecided"), or around a cycle. It may also end at an operation that all have entered and some or all do not complete: one of
// these ranks froze inside it, and all of them are `culprits` ("undecided" if nobody has completed it; if nobody waits behind it,
// nothing is reported). Where there are several such sets, each with one rank to blame, the ranks in all of them are the
// culprits, if there are any.
//
// What the launcher knew of the ranks (FlightDump.condition) decides where the dumps cannot: ranks that failed, or if there are
// none those that are stopped or do not answer, are the culprits, whether they are missing from what others wait in or inside it.
// If nobody waits for them, the verdict is "undecided", and the text names the last operation that they completed.
//
// Dumps taken on request ("read", "request") of ranks for which the launcher has no complaint blame nobody for lagging behind:
// being at different points when read means nothing ("undecided"). Mismatched operations are reported there too.
//
// What a ring has overwritten counts as done. Messages are matched by number only if both rings reach back to their beginning;
// otherwise only those in flight are looked at.
#pragma once

#include <cstdint>
#include <vector>

#include "proto/legoai/v1/flight_record.pb.h"

namespace legoai::comm {

// One dump per rank, in any order; ranks 0 ... world_size - 1 are expected, and some may be missing. Takes seconds for a thousand
// ranks.
v1::FlightAnalysis AnalyzeFlight(const std::vector<v1::FlightDump>& dumps, int64_t world_size);

}  // namespace legoai::comm
