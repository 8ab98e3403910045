// What `lego sac` prints and draws. Thread-safety: pure functions.
#pragma once

#include <string>

#include "planner/auto_sac.h"
#include "server/cli/output.h"

namespace legoai::cli {

// Operators of a block, its curve, what the policy costs beside none and full recomputation, and the recipe's lines.
std::string SacText(const planner::SacResult& result, int64_t budget_bytes);
Tree SacTree(const planner::SacResult& result, int64_t budget_bytes);
// The curve of the first stage's first block with its upper bound; where nothing is recomputed, a document that says so.
std::string SacSvg(const planner::SacResult& result);
// The section as a recipe has it.
std::string SacToml(const planner::SacResult& result);

}  // namespace legoai::cli
