// What the rules say of a recipe, for tests of what is legal.
#pragma once

#include <gtest/gtest.h>

#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "core/recipe/legality.h"
#include "core/recipe/recipe.h"
#include "core/recipe/testing/small_job.h"

namespace legoai::parallel::testing {

// The first rule that is broken, with defaults filled in.
inline std::optional<Violation> BrokenRule(v1::Recipe recipe, const v1::Model& model, int64_t world_size) {
  FillDefaults(&recipe);
  Layout layout;
  return FirstViolation(recipe, model, world_size, &layout);
}

// "rule: field = value", or "legal".
inline std::string Verdict(const v1::Recipe& recipe, const v1::Model& model, int64_t world_size) {
  const auto violation = BrokenRule(recipe, model, world_size);
  if (!violation) return "legal";
  EXPECT_FALSE(violation->remedy.empty());
  return absl::StrCat(violation->rule, ": ", violation->field, " = ", violation->value);
}

}  // namespace legoai::parallel::testing
