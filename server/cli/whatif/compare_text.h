// What `lego compare` says of two recipes and of their differences. Thread-safety: pure functions.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/json/reflect.h"
#include "proto/legoai/v1/estimate.pb.h"
#include "server/cli/whatif/recipe_changes.h"

namespace legoai::cli {

// Recipe A with some keys as B has them.
struct ChangedRecipe {
  std::vector<KeyChange> keys;
  absl::StatusOr<v1::Estimate> estimate;
};

struct Comparison {
  std::string a_name, b_name;  // of their files
  v1::Estimate a, b;
  std::vector<ChangedRecipe> changes;
};

// Both recipes side by side; then each change made alone to A, and how far the changes act on each other.
std::string ComparisonText(const Comparison& comparison);

// {"a": the JSON of `simulate`, "b", "changes": [{"keys": [{"key", "a", "b"}], "fits", "step_time_seconds", "peak_memory_bytes",
// "step_time_change_seconds", "peak_memory_change_bytes"} or with "error" instead]}: changes are against A.
Tree ComparisonTree(const Comparison& comparison);

}  // namespace legoai::cli
