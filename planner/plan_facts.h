// What a planning run has found, for those who rank and explain it. Torch-free. Pointers are the caller's.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "planner/legal.h"
#include "proto/legoai/v1/estimate.pb.h"
#include "proto/legoai/v1/plan.pb.h"

namespace legoai::planner {

struct SimulatedRecipe {
  const v1::Estimate* estimate = nullptr;
  const Survivor* survivor = nullptr;  // the same recipe in closed form
};

struct PlanFacts {
  const v1::PlanRequest* request = nullptr;
  const LegalSpace* space = nullptr;
  std::vector<SimulatedRecipe> ranked;         // that fit, best first
  std::vector<SimulatedRecipe> unfit;          // that do not, as in the space
  std::vector<const Survivor*> not_simulated;  // best first by the closed forms
  int64_t planned = 0;                         // simulations that were to be, those that were done included
  bool stopped_early = false;                  // the budget of seconds came before `planned`
  std::optional<LargerCluster> larger;         // looked for where nothing fits
};

}  // namespace legoai::planner
