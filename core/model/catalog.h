// Models known by name, with the sizes of their released config.json. Thread-safety: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/legoai/v1/model.pb.h"

namespace legoai::model {

// What distinguishes models of the Llama family. The dimension of a head is hidden / heads.
struct LlamaSizes {
  int64_t vocab, hidden, intermediate, layers, heads, kv_heads, positions;
  double rope_theta = 10000, initializer_range = 0.02;
};
// Untied, without a name.
v1::Model Llama(const LlamaSizes& sizes);

// llama3-1b and 3b are Llama 3.2's, llama3-8b to 405b Llama 3.1's; Mistral 7B, Qwen 2.5, Qwen 3 without experts, Gemma and
// Gemma 2; gpt2 to gpt2-xl. By family, smallest first.
const std::vector<v1::Model>& Catalog();

// The names of this architecture on the Hugging Face Hub, the base model's first: "meta-llama/Llama-3.1-8B". They are aliases of
// the catalog's name wherever a model is named.
const std::vector<std::string>& HubNames(const std::string& catalog_name);

// The catalog's model of that name or Hub name; null if there is none.
const v1::Model* FindModel(const std::string& name);

// All names that FindModel knows, the catalog's first.
std::vector<std::string> ModelNames();

// An existing path of a config.json or its folder (hf_config.h) wins over a Hub name spelled the same. Otherwise a name that
// FindModel knows, then a path. Errors: NotFound with the nearest name; those of ReadHfConfig.
absl::StatusOr<v1::Model> ResolveModel(const std::string& name_or_path);

}  // namespace legoai::model
