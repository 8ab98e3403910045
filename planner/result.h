// A plan's result from what was simulated. Thread-safety: pure functions.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "planner/legal.h"
#include "proto/legoai/v1/estimate.pb.h"
#include "proto/legoai/v1/plan.pb.h"

namespace legoai::planner {

// How many are ranked where a request does not say.
inline constexpr int64_t kDefaultTop = 10;

// What came of simulations, by index of the space's survivors.
struct Outcomes {
  std::map<size_t, v1::Estimate> simulated;
  std::map<size_t, std::string> failed;  // with the reason
  int64_t planned = 0;                   // simulations that were to be, those that were done included
  bool stopped_early = false;            // the budget of seconds came before `planned`
};

// Of `simulated`, what fits, best first (order.h).
std::vector<size_t> FittingOrder(const std::map<size_t, v1::Estimate>& simulated, v1::Objective objective);

// All but `seconds`. Takes `space` to pieces.
v1::PlanResult MakeResult(const v1::PlanRequest& request, LegalSpace space, const Outcomes& outcomes);

}  // namespace legoai::planner
