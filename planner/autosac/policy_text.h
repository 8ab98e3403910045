// What blocks keep, as rules of activation_checkpoint.selective_ac_policy (core/recipe/keep_policy.h).
//
// Thread-safety: a pure function.
#pragma once

#include <cstdint>
#include <map>

#include "planner/autosac/module_budgets.h"
#include "proto/legoai/v1/recipe.pb.h"

namespace legoai::planner {

// Of one block.
struct KeptOfBlock {
  bool recomputed = true;
  std::vector<int> operators;         // of its facts, that keep their outputs
  const BlockFacts* facts = nullptr;  // not owned
};
// The operators that the groups of a policy stand for.
KeptOfBlock KeptOf(const BlockPolicy& policy, const std::vector<Group>& groups, const BlockFacts& facts);

// The section of a recipe for a model with `blocks` blocks, all of which `kept` names: "none" or "full" where these say the same.
v1::ActivationCheckpoint SectionOf(const std::map<int64_t, KeptOfBlock>& kept, int64_t blocks);

}  // namespace legoai::planner
