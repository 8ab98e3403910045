// What activation checkpointing computes once more, in closed form. Thread-safety: a pure function.
#pragma once

#include "core/recipe/resolved_recipe.h"

namespace legoai::parallel {

// Floating-point operations of recomputation per token, counted as model::FlopsPerToken counts: of matrix products and of
// attention, the half that the causal mask saves not deducted. A block that is computed again repeats its products in order, but
// for those whose outputs it keeps (keep_policy.h) and for its last one: recomputation ends with the last tensor that backward
// asks for, and that is what this one multiplies (worker/parallel/activation_checkpoint.cc). Attention over parts of a sequence
// counts as one operator, as without context parallelism.
double RecomputedFlopsPerToken(const ResolvedRecipe& resolved);

}  // namespace legoai::parallel
