// Why the winner wins, in words, from the estimates alone.
#pragma once

#include <string>
#include <vector>

#include "proto/legoai/v1/estimate.pb.h"
#include "proto/legoai/v1/plan.pb.h"

namespace legoai::planner {

// "shard 8, tp 2, local batch 2 accumulated 4 times, full checkpointing, bfloat16"
std::string Summarize(const v1::Recipe& recipe);

// `ranked`: the estimates of the recipes that fit, best first. `result`: counts and what was rejected. Lines: the winner and
// where its time and memory go; then, each beginning with "- ", the best that would have decided otherwise, near ties, what was
// not reached.
// `best_not_reached`: by the closed-form estimate, the step time of the fastest that was not reached relative to the winner's; 0
// if there is none.
std::string Explain(const std::vector<v1::Estimate>& ranked, const v1::PlanResult& result, double best_not_reached = 0);

}  // namespace legoai::planner
