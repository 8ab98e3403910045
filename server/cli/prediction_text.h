// What `lego plan` and `lego simulate` print for people. Thread-safety: pure functions.
#pragma once

#include <string>

#include "proto/legoai/v1/estimate.pb.h"
#include "proto/legoai/v1/plan.pb.h"
#include "proto/legoai/v1/sim.pb.h"

namespace legoai::cli {

// The rule under which a PlanResult lists recipes whose simulation failed.
inline constexpr char kFailedRule[] = "failed";

// The ranking, what was rejected, the counts, and why the winner wins. Rejected recipes are shown where they matter: all of them,
// or a few where nothing fits or something failed.
std::string PlanText(const v1::PlanResult& result, bool all_rejected);

// Step time, throughput, costs; where the time goes, by part, stage, operator, module and along the critical path; memory by
// stage; where the figures come from. Lists that `estimate` does not have are left out.
std::string EstimateText(const v1::SimRequest& request, const v1::Estimate& estimate);

// "a billion tokens take 1,234 GPU-hours and 2,468 in the currency of the price"; empty where there is no cost.
std::string CostText(const v1::RunningCost& cost);

}  // namespace legoai::cli
