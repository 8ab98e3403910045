// Why a plan names no recipe, in words. Torch-free. Thread-safety: pure functions.
#pragma once

#include <string>

#include "planner/plan_facts.h"
#include "proto/legoai/v1/plan.pb.h"

namespace legoai::planner {

// The rules that leave nothing; or the closest to fitting, and how many devices would do; or that nothing was simulated.
std::string ExplainNone(const PlanFacts& facts, const v1::PlanResult& result);

}  // namespace legoai::planner
