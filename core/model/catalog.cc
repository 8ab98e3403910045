#include "core/model/catalog.h"

#include <algorithm>
#include <filesystem>
#include <map>

#include "core/model/hf_config.h"
#include "proto/errors.h"
#include "proto/text.h"

namespace legoai::model {
namespace {

// Vocabulary, key-value heads, context and the rest are one for all of Llama 3.1 and 3.2.
v1::Model Llama3(const char* name, int64_t layers, int64_t hidden, int64_t intermediate, int64_t heads, double rope_factor,
                 bool tied) {
  v1::Model model = Llama({.vocab = 128256,
                           .hidden = hidden,
                           .intermediate = intermediate,
                           .layers = layers,
                           .heads = heads,
                           .kv_heads = 8,
                           .positions = 131072,
                           .rope_theta = 500000});
  model.set_name(name);
  model.mutable_rope_scaling()->set_factor(rope_factor);
  model.mutable_rope_scaling()->set_low_freq_factor(1);
  model.mutable_rope_scaling()->set_high_freq_factor(4);
  model.mutable_rope_scaling()->set_original_max_position_embeddings(8192);
  model.set_tie_word_embeddings(tied);
  return model;
}

v1::Model Mistral7b(const char* name, int64_t vocab, double rope_theta, int64_t window) {
  v1::Model model = Llama({.vocab = vocab,
                           .hidden = 4096,
                           .intermediate = 14336,
                           .layers = 32,
                           .heads = 32,
                           .kv_heads = 8,
                           .positions = 32768,
                           .rope_theta = rope_theta});
  model.set_name(name);
  model.set_architecture(v1::MISTRAL);
  model.set_sliding_window(window);
  return model;
}

// The smaller ones are tied and have a table that is 128 rows shorter.
v1::Model Qwen25(const char* name, int64_t layers, int64_t hidden, int64_t intermediate, int64_t heads, int64_t kv_heads,
                 int64_t positions, double norm_eps, bool tied) {
  v1::Model model = Llama({.vocab = tied ? 151936 : 152064,
                           .hidden = hidden,
                           .intermediate = intermediate,
                           .layers = layers,
                           .heads = heads,
                           .kv_heads = kv_heads,
                           .positions = positions,
                           .rope_theta = 1e6});
  model.set_name(name);
  model.set_architecture(v1::QWEN2);
  model.set_norm_eps(norm_eps);
  model.set_tie_word_embeddings(tied);
  model.set_qkv_bias(true);
  return model;
}

v1::Model Qwen3(const char* name, int64_t layers, int64_t hidden, int64_t intermediate, int64_t heads, bool tied) {
  v1::Model model = Llama({.vocab = 151936,
                           .hidden = hidden,
                           .intermediate = intermediate,
                           .layers = layers,
                           .heads = heads,
                           .kv_heads = 8,
                           .positions = 40960,
                           .rope_theta = 1e6});
  model.set_name(name);
  model.set_architecture(v1::QWEN3);
  model.set_head_dim(128);
  model.set_norm_eps(1e-6);
  model.set_tie_word_embeddings(tied);
  model.set_qk_norm(true);
  return model;
}

v1::Model Gemma(const char* name, int64_t layers, int64_t hidden, int64_t intermediate, int64_t heads, int64_t kv_heads) {
  v1::Model model = Llama({.vocab = 256000,
                           .hidden = hidden,
                           .intermediate = intermediate,
                           .layers = layers,
                           .heads = heads,
                           .kv_heads = kv_heads,
                           .positions = 8192});
  model.set_name(name);
  model.set_architecture(v1::GEMMA);
  model.set_head_dim(256);
  model.set_norm_eps(1e-6);
  model.set_tie_word_embeddings(true);
  return model;
}

v1::Model Gemma2(const char* name, int64_t layers, int64_t hidden, int64_t intermediate, int64_t heads, int64_t kv_heads,
                 int64_t head_dim, double query_pre_attn_scalar) {
  v1::Model model = Gemma(name, layers, hidden, intermediate, heads, kv_heads);
  model.set_architecture(v1::GEMMA2);
  model.set_head_dim(head_dim);
  model.set_attn_logit_softcapping(50);
  model.set_final_logit_softcapping(30);
  model.set_query_pre_attn_scalar(query_pre_attn_scalar);
  model.set_sliding_window(4096);
  model.set_sliding_window_alternates(true);
  return model;
}

v1::Model Gpt2(const char* name, int64_t layers, int64_t hidden, int64_t heads) {
  v1::Model model;
  model.set_name(name);
  model.set_architecture(v1::GPT2);
  model.set_vocab_size(50257);
  model.set_hidden_size(hidden);
  model.set_intermediate_size(4 * hidden);
  model.set_num_hidden_layers(layers);
  model.set_num_attention_heads(heads);
  model.set_num_key_value_heads(heads);
  model.set_head_dim(hidden / heads);
  model.set_max_position_embeddings(1024);
  model.set_norm_eps(1e-5);
  model.set_tie_word_embeddings(true);
  model.set_initializer_range(0.02);
  model.set_embd_pdrop(0.1);
  model.set_attn_pdrop(0.1);
  model.set_resid_pdrop(0.1);
  return model;
}

}  // namespace

v1::Model Llama(const LlamaSizes& sizes) {
  v1::Model model;
  model.set_architecture(v1::LLAMA);
  model.set_vocab_size(sizes.vocab);
  model.set_hidden_size(sizes.hidden);
  model.set_intermediate_size(sizes.intermediate);
  model.set_num_hidden_layers(sizes.layers);
  model.set_num_attention_heads(sizes.heads);
  model.set_num_key_value_heads(sizes.kv_heads);
  model.set_head_dim(sizes.hidden / sizes.heads);
  model.set_max_position_embeddings(sizes.positions);
  model.set_norm_eps(1e-5);
  model.set_rope_theta(sizes.rope_theta);
  model.set_initializer_range(sizes.initializer_range);
  return model;
}

const std::vector<v1::Model>& Catalog() {
  static const auto* const catalog = new std::vector<v1::Model>{
      Llama3("llama3-1b", 16, 2048, 8192, 32, 32, true),
      Llama3("llama3-3b", 28, 3072, 8192, 24, 32, true),
      Llama3("llama3-8b", 32, 4096, 14336, 32, 8, false),
      Llama3("llama3-70b", 80, 8192, 28672, 64, 8, false),
      Llama3("llama3-405b", 126, 16384, 53248, 128, 8, false),
      Mistral7b("mistral-7b-v0.1", 32000, 10000, 4096),
      Mistral7b("mistral-7b-v0.3", 32768, 1e6, 0),
      Qwen25("qwen2.5-0.5b", 24, 896, 4864, 14, 2, 32768, 1e-6, true),
      Qwen25("qwen2.5-1.5b", 28, 1536, 8960, 12, 2, 131072, 1e-6, true),
      Qwen25("qwen2.5-3b", 36, 2048, 11008, 16, 2, 32768, 1e-6, true),
      Qwen25("qwen2.5-7b", 28, 3584, 18944, 28, 4, 131072, 1e-6, false),
      Qwen25("qwen2.5-14b", 48, 5120, 13824, 40, 8, 131072, 1e-5, false),
      Qwen25("qwen2.5-32b", 64, 5120, 27648, 40, 8, 131072, 1e-5, false),
      Qwen25("qwen2.5-72b", 80, 8192, 29568, 64, 8, 131072, 1e-5, false),
      Qwen3("qwen3-0.6b", 28, 1024, 3072, 16, true),
      Qwen3("qwen3-1.7b", 28, 2048, 6144, 16, true),
      Qwen3("qwen3-4b", 36, 2560, 9728, 32, true),
      Qwen3("qwen3-8b", 36, 4096, 12288, 32, false),
      Qwen3("qwen3-14b", 40, 5120, 17408, 40, false),
      Qwen3("qwen3-32b", 64, 5120, 25600, 64, false),
      Gemma("gemma-2b", 18, 2048, 16384, 8, 1),
      Gemma("gemma-7b", 28, 3072, 24576, 16, 16),
      Gemma2("gemma2-2b", 26, 2304, 9216, 8, 4, 256, 256),
      Gemma2("gemma2-9b", 42, 3584, 14336, 16, 8, 256, 256),
      Gemma2("gemma2-27b", 46, 4608, 36864, 32, 16, 128, 144),
      Gpt2("gpt2", 12, 768, 12),
      Gpt2("gpt2-medium", 24, 1024, 16),
      Gpt2("gpt2-large", 36, 1280, 20),
      Gpt2("gpt2-xl", 48, 1600, 25),
  };
  return *catalog;
}

const std::vector<std::string>& HubNames(const std::string& catalog_name) {
  static const auto* const names = new std::map<std::string, std::vector<std::string>>{
      {"llama3-1b", {"meta-llama/Llama-3.2-1B", "meta-llama/Llama-3.2-1B-Instruct"}},
      {"llama3-3b", {"meta-llama/Llama-3.2-3B", "meta-llama/Llama-3.2-3B-Instruct"}},
      {"llama3-8b", {"meta-llama/Llama-3.1-8B", "meta-llama/Llama-3.1-8B-Instruct"}},
      {"llama3-70b", {"meta-llama/Llama-3.1-70B", "meta-llama/Llama-3.1-70B-Instruct", "meta-llama/Llama-3.3-70B-Instruct"}},
      {"llama3-405b", {"meta-llama/Llama-3.1-405B", "meta-llama/Llama-3.1-405B-Instruct"}},
      {"mistral-7b-v0.1", {"mistralai/Mistral-7B-v0.1", "mistralai/Mistral-7B-Instruct-v0.1"}},
      {"mistral-7b-v0.3", {"mistralai/Mistral-7B-v0.3", "mistralai/Mistral-7B-Instruct-v0.3"}},
      {"qwen2.5-0.5b", {"Qwen/Qwen2.5-0.5B", "Qwen/Qwen2.5-0.5B-Instruct"}},
      {"qwen2.5-1.5b", {"Qwen/Qwen2.5-1.5B"}},
      {"qwen2.5-3b", {"Qwen/Qwen2.5-3B", "Qwen/Qwen2.5-3B-Instruct"}},
      {"qwen2.5-7b", {"Qwen/Qwen2.5-7B"}},
      {"qwen2.5-14b", {"Qwen/Qwen2.5-14B"}},
      {"qwen2.5-32b", {"Qwen/Qwen2.5-32B"}},
      {"qwen2.5-72b", {"Qwen/Qwen2.5-72B"}},
      {"qwen3-0.6b", {"Qwen/Qwen3-0.6B"}},
      {"qwen3-1.7b", {"Qwen/Qwen3-1.7B"}},
      {"qwen3-4b", {"Qwen/Qwen3-4B"}},
      {"qwen3-8b", {"Qwen/Qwen3-8B"}},
      {"qwen3-14b", {"Qwen/Qwen3-14B"}},
      {"qwen3-32b", {"Qwen/Qwen3-32B"}},
      {"gemma-2b", {"google/gemma-2b", "google/gemma-2b-it"}},
      {"gemma-7b", {"google/gemma-7b", "google/gemma-7b-it"}},
      {"gemma2-2b", {"google/gemma-2-2b", "google/gemma-2-2b-it"}},
      {"gemma2-9b", {"google/gemma-2-9b", "google/gemma-2-9b-it"}},
      {"gemma2-27b", {"google/gemma-2-27b", "google/gemma-2-27b-it"}},
      {"gpt2", {"openai-community/gpt2"}},
      {"gpt2-medium", {"openai-community/gpt2-medium"}},
      {"gpt2-large", {"openai-community/gpt2-large"}},
      {"gpt2-xl", {"openai-community/gpt2-xl"}},
  };
  static const auto* const none = new std::vector<std::string>();
  const auto found = names->find(catalog_name);
  return found == names->end() ? *none : found->second;
}

const v1::Model* FindModel(const std::string& name) {
  for (const v1::Model& model : Catalog()) {
    const std::vector<std::string>& hub = HubNames(model.name());
    if (model.name() == name || std::find(hub.begin(), hub.end(), name) != hub.end()) return &model;
  }
  return nullptr;
}

std::vector<std::string> ModelNames() {
  std::vector<std::string> names, hub;
  for (const v1::Model& model : Catalog()) {
    names.push_back(model.name());
    hub.insert(hub.end(), HubNames(model.name()).begin(), HubNames(model.name()).end());
  }
  names.insert(names.end(), hub.begin(), hub.end());
  return names;
}

absl::StatusOr<v1::Model> ResolveModel(const std::string& name_or_path) {
  std::error_code ignored;
  const bool exists = !name_or_path.empty() && std::filesystem::exists(name_or_path, ignored);
  const v1::Model* known = FindModel(name_or_path);
  // A clone of the Hub lies in a folder of the same name, and may have been changed.
  const bool is_clone = exists && known != nullptr && known->name() != name_or_path;
  if (known != nullptr && !is_clone) return *known;
  if (exists) return ReadHfConfig(name_or_path);
  return FieldError(
      "model.name", name_or_path,
      "is neither a path nor a name of the catalog (`lego models`); the nearest name is " + Nearest(name_or_path, ModelNames()),
      absl::StatusCode::kNotFound);
}

}  // namespace legoai::model
