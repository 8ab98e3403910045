// Which recipes are legal for a model and a number of ranks: named rules, so that the planner can count what each one removes.
// Thread-safety: pure functions.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/mesh/mesh.h"
#include "proto/legoai/v1/model.pb.h"
#include "proto/legoai/v1/recipe.pb.h"

namespace legoai::parallel {

struct Violation {
  std::string rule;    // "tp_divides_kv_heads"
  std::string field;   // "parallelism.tensor_parallel_degree"
  std::string value;   // "3"
  std::string remedy;  // what is wrong with it and what to do
};

// A recipe's numbers, with everything derived.
struct Layout {
  int64_t world_size = 1;
  mesh::Mesh mesh;
  int64_t global_batch = 1, local_batch = 1, microbatch_size = 1;  // sequences; microbatch_size is local_batch without pp
  int64_t seq_len = 1;
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

// In the order of evaluation; a rule may rely on those before it.
const std::vector<Rule>& Rules();

// The first rule that `recipe` (with its defaults) breaks for `model` on `world_size` ranks; nothing if it is legal, and then
// `*layout` is its layout. A key out of range breaks rule "keys_in_range".
std::optional<Violation> FirstViolation(const v1::Recipe& recipe, const v1::Model& model, int64_t world_size, Layout* layout);

}  // namespace legoai::parallel
