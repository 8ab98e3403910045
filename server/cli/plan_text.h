// A plan for people: the ranking, what was rejected, the counts, and why the winner wins. Thread-safety: pure
// functions.
#pragma once

#include <string>

#include "proto/legoai/v1/plan.pb.h"

namespace legoai::cli {

// The rule under which a PlanResult lists recipes whose simulation failed.
inline constexpr char kFailedRule[] = "failed";

// Rejected recipes are shown where they matter: all of them, or a few where nothing fits or something failed.
std::string PlanText(const v1::PlanResult& result, bool all_rejected);

}  // namespace legoai::cli
