// Entries of a plan's ranking, from a simulation or from the closed forms alone, and their order. Thread-safety: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "planner/legal.h"
#include "proto/legoai/v1/estimate.pb.h"
#include "proto/legoai/v1/plan.pb.h"

namespace legoai::planner {

// For a recipe that was simulated and fits.
v1::RankedRecipe RankSimulated(const v1::Estimate& estimate);

// The same without recipe_toml, for progress reports.
v1::RankedRecipe RankSimulatedSoFar(const v1::Estimate& estimate);

// For a recipe that was not simulated, marked as such: times are the roofline estimate's, peak_memory_bytes is the lower bound
// and headroom_bytes the upper bound that follows. It may not fit, and has no memory by category.
v1::RankedRecipe RankEstimated(const v1::PlanRequest& request, const Survivor& survivor);

// Whether a plan names a recipe that is known to fit: its first entry is simulated. Only such a recipe may be run.
inline bool HasRecipe(const v1::PlanResult& result) { return result.ranked_size() > 0 && !result.ranked(0).estimated(); }

// Relative difference below which step times are considered equal, because predictions cannot distinguish them. For plans by
// memory, the same for peaks.
inline constexpr double kNearTie = 0.01;

struct Standing {
  double step_seconds = 0;
  int64_t headroom_bytes = 0;
  int64_t peak_bytes = 0;  // of the fullest device; used only for MEMORY
};

// Whether `seconds` is no more than kNearTie above `fastest`.
constexpr bool IsNearTie(double seconds, double fastest) { return seconds <= fastest * (1 + kNearTie); }

// Whether a recipe that fits is faster with a choice than without it, beyond a near tie.
inline bool GainsTime(const v1::Estimate& with, const v1::Estimate& without) {
  return with.fits() && !IsNearTie(without.step_time_seconds(), with.step_time_seconds());
}

// Indices of recipes that were simulated and fit, best first. The fastest and its near ties come first, then the fastest of the
// rest and its near ties, and so on: "nearly equal" is not transitive, but groups that begin with their fastest are an order. In
// a group the larger headroom wins, then the shorter time, then the smaller index. By MEMORY the groups are of peaks, and in a
// group the shorter time wins, then the smaller peak.
std::vector<size_t> RankOrder(const std::vector<Standing>& standings, v1::Objective objective = v1::STEP_TIME);

}  // namespace legoai::planner
