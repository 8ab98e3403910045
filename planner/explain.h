// Why the winner wins, in words, from the estimates alone. Thread-safety: pure functions.
#pragma once

#include <string>

#include "planner/plan_facts.h"
#include "proto/legoai/v1/plan.pb.h"
#include "proto/legoai/v1/recipe.pb.h"

namespace legoai::planner {

// "shard 8, tp 2, local batch 2 accumulated 4 times, full checkpointing, bfloat16"
std::string Summarize(const v1::Recipe& recipe);

// `result`: counts and rejected recipes. Lines: the winner and where its time and memory go; then, each beginning with "- ", the
// load of its links, the best alternatives for each choice and why they lose, near ties, what was not simulated. Every recipe is
// named once.
std::string Explain(const PlanFacts& facts, const v1::PlanResult& result);

// Why a plan names no recipe, in words. Thread-safety: pure functions.

// The rules that leave no candidates; or the recipes closest to fitting, and how many devices would suffice; or that nothing was
// simulated.
std::string ExplainNone(const PlanFacts& facts, const v1::PlanResult& result);

}  // namespace legoai::planner
