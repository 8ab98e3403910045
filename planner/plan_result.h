// What came of a plan's simulations, and the result that is made of it. Thread-safety: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "planner/last_choices.h"
#include "planner/legal.h"
#include "planner/plan_facts.h"
#include "proto/legoai/v1/estimate.pb.h"
#include "proto/legoai/v1/plan.pb.h"

namespace legoai::planner {

// What came of simulations, by index of the space's survivors.
struct Outcomes {
  // A recipe as the space has it, and the same with other collectives: indices.
  struct Bucketed {
    size_t by_block = 0, planned = 0, alone = 0;
  };
  std::vector<Bucketed> bucketed;
  std::map<size_t, v1::Estimate> simulated;
  std::map<size_t, std::string> failed;  // with the reason
  std::map<size_t, PolicyGain> gains;    // of those of `simulated` that have a policy of this plan
  std::optional<int64_t> policies;       // layouts that policies were made for; nothing where none were asked for
  std::vector<Attempt> attempts;         // of the last choices, in the order in which they were tried
  int64_t planned = 0;                   // simulations that were to be, those that were done included
  int64_t slower = 0;                    // not simulated, and certain to be slower than all that are shown
  bool stopped_early = false;            // the budget of seconds came before `planned`
  std::string of_fused;                  // OpenChoices::of_fused
};

// Of what was simulated, what fits, best first (ranking.h).
std::vector<size_t> FittingOrder(const Outcomes& outcomes, v1::Objective objective);

// The same without attempts that gained nothing: what a plan ranks.
std::vector<size_t> RankedOrder(const Outcomes& outcomes, v1::Objective objective);

// All but `seconds`. Takes the space to pieces.
v1::PlanResult MakeResult(const v1::PlanRequest& request, LegalSpace space, const Outcomes& outcomes);

}  // namespace legoai::planner
