// The order of recipes that were simulated and fit. Thread-safety: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "proto/legoai/v1/plan.pb.h"

namespace legoai::planner {

// Step times this close are called equal: predictions do not tell them apart. For plans by memory, peaks this close.
inline constexpr double kNearTie = 0.01;

struct Standing {
  double step_seconds = 0;
  int64_t headroom_bytes = 0;
  int64_t peak_bytes = 0;  // of the fullest device; read for MEMORY alone
};

// Whether `seconds` is no more than kNearTie above `fastest`.
constexpr bool IsNearTie(double seconds, double fastest) { return seconds <= fastest * (1 + kNearTie); }

// Indices of `standings`, best first. The fastest and its near ties come first, then the fastest of the rest and its near ties,
// and so on: "nearly equal" is not transitive, groups that begin with their fastest are an order nevertheless. In a group the
// larger headroom wins, then the shorter time, then the smaller index. By MEMORY the groups are of peaks, and in a group the
// shorter time wins, then the smaller peak.
std::vector<size_t> RankOrder(const std::vector<Standing>& standings, v1::Objective objective = v1::STEP_TIME);

}  // namespace legoai::planner
