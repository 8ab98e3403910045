// Which recipes are legal for a model and a number of ranks: named rules, so that the planner can count what each removed.
// Torch-free. Thread-safety: pure functions.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "proto/legoai/v1/model.pb.h"
#include "proto/legoai/v1/recipe.pb.h"

namespace legoai::parallel {

struct Violation {
  std::string rule;    // "tp_divides_kv_heads"
  std::string field;   // "parallelism.tensor_parallel_degree"
  std::string value;   // "3"
  std::string remedy;  // what is wrong with it and what to do
};

// A recipe's numbers with everything derived that can be derived.
struct Layout {
  int64_t world_size = 1;
  int64_t replicate = 1, shard = 1, tp = 1, pp = 1;
  int64_t global_batch = 1, local_batch = 1, microbatch_size = 1;  // sequences; microbatch_size is local_batch without pp
  int64_t seq_len = 1;
  int64_t dp() const { return replicate * shard; }
};

// What a rule looks at. The recipe has its defaults.
struct Candidate {
  const v1::Recipe& recipe;
  const v1::Model& model;
  Layout layout;
};

struct Rule {
  const char* name;
  std::function<std::optional<Violation>(const Candidate&)> check;  // Violation::rule is left to the caller
};

// In the order in which they are asked; a rule may rely on those before it.
const std::vector<Rule>& Rules();

// Degrees and batches of -1 derived from the others; what cannot be derived is 1 and breaks a rule.
// `recipe` has its defaults and passes CheckRecipe.
Layout DeriveLayout(const v1::Recipe& recipe, int64_t world_size);

// The first rule that `recipe` (defaults are filled in) breaks for `model` on `world_size` ranks; nothing: it is legal.
// A key out of its range is rule "keys_in_range".
std::optional<Violation> FirstViolation(const v1::Recipe& recipe, const v1::Model& model, int64_t world_size);

}  // namespace legoai::parallel
