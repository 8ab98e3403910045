// What stands still in a run that goes on, told from two looks at the flight records of its ranks. Thread-safety: a
// pure function.
#pragma once

#include <cstdint>
#include <vector>

#include "proto/legoai/v1/flight_record.pb.h"

namespace legoai::comm {

// Says who waits for whom, and since when, where ranks have been inside of the same collective or message in both looks, for a
// second at least, and nobody else came to it in between: "rank 0 waits for rank 1 since 12 s: ...". Nobody is blamed
// ("undecided"): whoever is waited for may be computing. Elsewhere, and where ranks entered different things, it says what
// AnalyzeFlight says of `later`. One dump of each rank in each look, read from rings; `now_ns`: when the later ones were read,
// since the epoch.
v1::FlightAnalysis AnalyzeStandstill(const std::vector<v1::FlightDump>& earlier, const std::vector<v1::FlightDump>& later,
                                     int64_t world_size, int64_t now_ns);

}  // namespace legoai::comm
