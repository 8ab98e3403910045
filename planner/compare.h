// Why one recipe's step takes longer than another's, in words. Thread-safety: pure functions.
#pragma once

#include <string>

#include "planner/plan_facts.h"
#include "simulator/symbolic/roofline_estimate.h"

namespace legoai::planner {

// For a step that takes `ratio` times as long as another: "is 12 % slower", "takes 12 times as long", "takes 20 % less time", "is
// as fast, within the noise of the prediction".
std::string StepTimeText(double ratio);

// "sharding puts 112 GB a step on each device's nvlink4 (360 GB/s): 0.311 s, beside 6.2 s of compute that can hide it"
std::string LinkText(const v1::Cluster& cluster, sim::LinkUse use, const sim::LinkLoad& load, double compute_seconds);

// "(p - 1) / m = 7 / 64, 11 % of a stage's work"; "(p - 1) / (v m) = 7 / (2 x 64), ..." with v chunks a rank; empty without a
// pipeline. `layers`: the model's.
std::string BubbleText(const v1::Recipe& recipe, int64_t layers);

// The part of the step that accounts for most of the difference, its cause, and what would have to change for `other` to be as
// fast: ", mostly exposed communication (+0.5 s): ...". Empty if the two are near ties or no part is longer.
std::string CauseText(const v1::PlanRequest& request, const SimulatedRecipe& winner, const SimulatedRecipe& other);

}  // namespace legoai::planner
