// Entries of a plan's ranking, from a simulation or from the closed forms alone. Pure.
#pragma once

#include <cstdint>

#include "planner/legal.h"
#include "proto/legoai/v1/estimate.pb.h"
#include "proto/legoai/v1/plan.pb.h"

namespace legoai::planner {

// Of a recipe that was simulated and fits.
v1::RankedRecipe RankSimulated(const v1::Estimate& estimate);

// The same without recipe_toml, for what is shown while planning goes on.
v1::RankedRecipe RankSimulatedSoFar(const v1::Estimate& estimate);

// Of a recipe that was not simulated, marked so: times are the roofline estimate's, peak_memory_bytes is the lower bound and
// headroom_bytes what that leaves at most. It may not fit, and has no memory by category.
v1::RankedRecipe RankEstimated(const v1::PlanRequest& request, const Survivor& survivor);

// Whether a plan names a recipe that is known to fit: its first entry is simulated. Only such a one may be run.
inline bool HasRecipe(const v1::PlanResult& result) { return result.ranked_size() > 0 && !result.ranked(0).estimated(); }

}  // namespace legoai::planner
