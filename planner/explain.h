// Why the winner wins, in words, from the estimates alone.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "proto/legoai/v1/estimate.pb.h"
#include "proto/legoai/v1/plan.pb.h"

namespace legoai::planner {

// "shard 8, tp 2, local batch 2 accumulated 4 times, full checkpointing, bfloat16"
std::string Summarize(const v1::Recipe& recipe);

// What the budget ended before, the fastest by the closed-form estimate first.
struct NotReached {
  struct Entry {
    const v1::Recipe* recipe = nullptr;  // of the caller
    double relative_time = 1;            // its step time relative to the winner's, by the closed-form estimate
  };
  double budget_seconds = 0;
  std::vector<Entry> entries;
};

// By rule, why one of the recipes that it dropped is not legal.
using Reasons = std::map<std::string, std::string>;

// `ranked`: the estimates of the recipes that fit, best first. `result`: counts and what was rejected. Lines: the winner and
// where its time and memory go; then, each beginning with "- ", the best that would have decided otherwise, near ties, what was
// not reached.
std::string Explain(const std::vector<v1::Estimate>& ranked, const v1::PlanResult& result, const NotReached& not_reached = {},
                    const Reasons& reasons = {});

}  // namespace legoai::planner
