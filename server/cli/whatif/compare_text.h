// The keys in which two recipes differ, which of them can be changed alone, and the output of `lego compare`. Thread-safety: pure
// functions.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/json/reflect.h"
#include "proto/legoai/v1/estimate.pb.h"
#include "proto/legoai/v1/recipe.pb.h"

namespace legoai::cli {

struct KeyChange {
  std::string key;   // "parallelism.tensor_parallel_degree"
  std::string a, b;  // as in a recipe file; "-" if unset
};

// The keys whose values differ, in the order of the schema, those that only `b` sets last. Unset ones count as their defaults.
std::vector<KeyChange> ChangedKeys(const v1::Recipe& a, const v1::Recipe& b);

// `a` with the values of `b` for these keys.
absl::StatusOr<v1::Recipe> WithKeysOf(const v1::Recipe& a, const v1::Recipe& b, const std::vector<std::string>& keys);

// For each key the smallest set of keys (by index) that contains it and can be changed together, each set once: a degree can
// often be changed only with another one. Of several equally small ones the first. If all small sets are refused: all keys.
std::vector<std::vector<size_t>> SmallestLegalChanges(size_t keys, const std::function<bool(const std::vector<size_t>&)>& legal);

// Recipe A with B's values for some keys.
struct ChangedRecipe {
  std::vector<KeyChange> keys;
  absl::StatusOr<v1::Estimate> estimate;
};

struct Comparison {
  std::string a_name, b_name;  // of their files
  v1::Estimate a, b;
  std::vector<ChangedRecipe> changes;
};

// Both recipes side by side; then each change applied alone to A, and how much the changes interact.
std::string ComparisonText(const Comparison& comparison);

// {"a": the JSON of `simulate`, "b", "changes": [{"keys": [{"key", "a", "b"}], "fits", "step_time_seconds", "peak_memory_bytes",
// "step_time_change_seconds", "peak_memory_change_bytes"} or with "error" instead]}: changes are against A.
Tree ComparisonTree(const Comparison& comparison);

}  // namespace legoai::cli
