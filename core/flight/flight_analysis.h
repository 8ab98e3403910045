// What the flight recorders of all ranks say together: which collective or message does not go on, and because of whom.
// Thread-safety: a pure function.
//
// Verdicts are named as PyTorch's analyzer names them. Two kinds of trouble are looked for. Ranks that entered something else
// under the same number (type, sizes, dtype): those that differ from most are to blame. And ranks that have not entered what
// others are inside of ("collective_state_mismatch"): a rank that is missing because it waits itself, in another group or for a
// message, is not to blame; the chain is followed to a rank that waits for nobody, or has left no dump ("undecided"), or around a
// circle. It may also end at what all have entered and some, or all, do not complete: one of these froze in the middle of it, and
// `culprits` are all of these ("undecided" where nobody has completed it; where nobody waits behind that, nothing is found). Of
// several such sets, of each of which one rank is to blame, whoever is in all of them is the culprit, if there is anybody.
//
// What the launcher knew of the ranks (FlightDump.condition) decides where the dumps cannot: ranks that failed, or without any
// those that are stopped or do not answer, are the culprits, be they missing in what others wait in, or inside of it. If nobody
// waits for them, the verdict is "undecided", and the text says what they went through last.
//
// Dumps that were taken on request ("read", "request"), of ranks of which the launcher knows no ill, name nobody for not being
// where others are: that they are at different points when they are read says nothing ("undecided"). What was entered differently
// is wrong there too.
//
// What a ring has overwritten counts as done. A message is told from its number only if both rings reach back to their beginning;
// otherwise only those that are under way are looked at.
#pragma once

#include <cstdint>
#include <vector>

#include "proto/legoai/v1/flight_record.pb.h"

namespace legoai::comm {

// One dump of each rank, in any order; some may be missing: ranks 0 ... world_size - 1 are expected. Takes seconds for a thousand
// ranks.
v1::FlightAnalysis AnalyzeFlight(const std::vector<v1::FlightDump>& dumps, int64_t world_size);

}  // namespace legoai::comm
