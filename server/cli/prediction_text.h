// What `lego plan` and `lego simulate` print for people. Thread-safety: pure functions.
#pragma once

#include <string>

#include "proto/legoai/v1/estimate.pb.h"
#include "proto/legoai/v1/plan.pb.h"
#include "proto/legoai/v1/sim.pb.h"

namespace legoai::cli {

// The rule under which a PlanResult lists recipes whose simulation failed.
inline constexpr char kFailedRule[] = "failed";

// The ranking, rejected recipes, counts, and why the winner wins. Shows all rejected recipes, or else a few if nothing fits or
// something failed.
std::string PlanText(const v1::PlanResult& result, bool all_rejected);

// Step time, throughput, costs; where the time goes, by part, stage, operator, module and along the critical path; memory by
// stage; sources of the figures. Omits lists that `estimate` does not have.
std::string EstimateText(const v1::SimRequest& request, const v1::Estimate& estimate);

// "a billion tokens take 1,234 GPU-hours and 2,468 in the currency of the price"; empty without a cost.
std::string CostText(const v1::RunningCost& cost);

}  // namespace legoai::cli
