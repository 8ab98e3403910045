// The recipes that parity, capture, execution and memory are shown on: one list for all of them.
#pragma once

#include <cstdint>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "proto/legoai/v1/model.pb.h"
#include "proto/legoai/v1/recipe.pb.h"

namespace legoai::integration {

struct Case {
  std::string name;  // "fsdp2_tp2_ac"
  v1::Model model;
  v1::Recipe recipe;
  int64_t world_size = 1;
  std::optional<int64_t> dropout_seed;  // if another than the recipe's seed, which the weights begin with
};
inline void PrintTo(const Case& test_case, std::ostream* out) { *out << test_case.name; }  // what a failed test says it is of

// Small models of the real architectures, with sizes that no degree divides evenly where that is legal.
v1::Model TinyLlama();
v1::Model TinyGpt2();
v1::Model DeepLlama();  // six layers
v1::Model UntiedGpt2();
v1::Model DeepGpt2();  // six layers
v1::Model SharedHeadsLlama();  // four ranks share its two key-value heads
v1::Model TinyMistral();  // a window shorter than the sequence
v1::Model TinyQwen2();
v1::Model TinyQwen3();  // heads wider than hidden_size / num_attention_heads
v1::Model TinyGemma();   // one key-value head
v1::Model TinyGemma2();  // windows by turns, capped scores and logits

// The same training on one process: what a case is compared with.
Case Reference(const Case& test_case);
// Whether anything of it is rounded to 16 bits that is not in the reference, or may be rounded the other way there.
bool IsRounded(const Case& test_case);

// Everything that parity is promised for, and layouts that a planner may choose besides. GPT-2 with its dropout on.
std::vector<Case> ParityCases();

}  // namespace legoai::integration
