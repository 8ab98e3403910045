// Whether the ranks entered the same operation under one sequence number, with PyTorch's verdicts. Thread-safety: pure functions.
//
// Ranks that differ from the largest set of ranks that agree are to blame; if there is no single largest set, all are. A rank
// whose own input and output sizes contradict each other is to blame before any majority is counted.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/flight/flight_history.h"

namespace legoai::comm {

inline constexpr char kFullyMatched[] = "fully_matched";
inline constexpr char kTypeMismatch[] = "collective_type_mismatch";
inline constexpr char kSizeMismatch[] = "size_or_syntax_mismatch";
inline constexpr char kDtypeMismatch[] = "collective_dtype_mismatch";
inline constexpr char kStateMismatch[] = "collective_state_mismatch";
inline constexpr char kUndecided[] = "undecided";

struct FlightMatch {
  std::string verdict = kFullyMatched;  // never kStateMismatch: how far ranks are is not looked at
  std::vector<int64_t> culprits;        // ranks in the world, ascending
  std::string text;                     // "rank 2 is in all_reduce, the others all_gather"
};

// `group_size`: ranks of the group, of which some may have no part.
FlightMatch MatchCollective(const FlightCollective& collective, int64_t group_size);

// The n-th send and the n-th receive of a channel.
FlightMatch MatchMessage(const FlightChannel& channel, size_t n);

}  // namespace legoai::comm
