// The architecture of a model from a Hugging Face config.json, and back. Thread-safety: pure functions.
//
// Reads LlamaForCausalLM, MistralForCausalLM, Qwen2ForCausalLM (also Qwen 2.5), Qwen3ForCausalLM, GemmaForCausalLM,
// Gemma2ForCausalLM and GPT2LMHeadModel with the keys that transformers writes, the newer `rope_parameters` included; optional
// keys have transformers' defaults. GPTModel is ours: Megatron's GPT, with GPT-2's keys and two more (docs/recipe.md). Settings
// that would change the model and are not supported are refused by name; other keys are kept in Model::config_json.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "proto/legoai/v1/model.pb.h"

namespace legoai::model {

// `path`: a config.json, or the folder that holds one. The model is named after the folder. Errors: NotFound for a file that
// cannot be read; otherwise as ParseHfConfig.
absl::StatusOr<v1::Model> ReadHfConfig(const std::string& path);

// Errors: FieldError with field "config.json: KEY" for text that is no JSON object, a missing or impossible key, an unknown
// architecture, a setting that is not supported.
absl::StatusOr<v1::Model> ParseHfConfig(const std::string& text, const std::string& name);

// The config.json as it was read, byte for byte; for a catalog model one with all keys that transformers needs.
std::string WriteHfConfig(const v1::Model& model);

// The same for weights in float32 that were trained with a tokenizer whose documents begin and end with these ids. Without such
// an id the key is null, because transformers' defaults are ids of other tokenizers. A list of end ids that contains `end` stays
// as it is, and so does a text in which nothing would change.
std::string WriteHfConfigOfExport(const v1::Model& model, std::optional<int32_t> begin, std::optional<int32_t> end);

}  // namespace legoai::model
