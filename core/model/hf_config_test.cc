#include "core/model/hf_config.h"

#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "core/model/catalog.h"
#include "proto/errors.h"

namespace legoai::model {
namespace {

using Json = nlohmann::ordered_json;

// With the keys and values of the released config.json of Llama 3.1 8B.
Json Llama() {
  return Json::parse(R"({"architectures": ["LlamaForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
    "bos_token_id": 128000, "eos_token_id": 128001, "hidden_act": "silu", "hidden_size": 4096, "initializer_range": 0.02,
    "intermediate_size": 14336, "max_position_embeddings": 131072, "mlp_bias": false, "model_type": "llama",
    "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 8, "pretraining_tp": 1, "rms_norm_eps": 1e-05,
    "rope_scaling": {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                     "original_max_position_embeddings": 8192, "rope_type": "llama3"},
    "rope_theta": 500000.0, "tie_word_embeddings": false, "torch_dtype": "bfloat16", "use_cache": true, "vocab_size": 128256})");
}

// With keys and values of the released config.json of Mistral 7B v0.1, Qwen 2.5 7B, Qwen 3 8B, Gemma 2B and Gemma 2 2B.
Json Mistral() {
  return Json::parse(R"({"architectures": ["MistralForCausalLM"], "bos_token_id": 1, "eos_token_id": 2, "hidden_act": "silu",
    "hidden_size": 4096, "initializer_range": 0.02, "intermediate_size": 14336, "max_position_embeddings": 32768,
    "model_type": "mistral", "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 8, "rms_norm_eps": 1e-05,
    "rope_theta": 10000.0, "sliding_window": 4096, "tie_word_embeddings": false, "torch_dtype": "bfloat16",
    "vocab_size": 32000})");
}
Json Qwen2() {
  return Json::parse(R"({"architectures": ["Qwen2ForCausalLM"], "attention_dropout": 0.0, "hidden_act": "silu",
    "hidden_size": 3584, "initializer_range": 0.02, "intermediate_size": 18944, "max_position_embeddings": 131072,
    "max_window_layers": 28, "model_type": "qwen2", "num_attention_heads": 28, "num_hidden_layers": 28, "num_key_value_heads": 4,
    "rms_norm_eps": 1e-06, "rope_theta": 1000000.0, "sliding_window": 131072, "tie_word_embeddings": false,
    "use_sliding_window": false, "vocab_size": 152064})");
}
Json Qwen3() {
  return Json::parse(R"({"architectures": ["Qwen3ForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
    "head_dim": 128, "hidden_act": "silu", "hidden_size": 4096, "initializer_range": 0.02, "intermediate_size": 12288,
    "max_position_embeddings": 40960, "max_window_layers": 36, "model_type": "qwen3", "num_attention_heads": 32,
    "num_hidden_layers": 36, "num_key_value_heads": 8, "rms_norm_eps": 1e-06, "rope_scaling": null, "rope_theta": 1000000,
    "sliding_window": null, "tie_word_embeddings": false, "use_sliding_window": false, "vocab_size": 151936})");
}
Json Gemma() {
  return Json::parse(R"({"architectures": ["GemmaForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
    "head_dim": 256, "hidden_act": "gelu_pytorch_tanh", "hidden_activation": null, "hidden_size": 2048, "initializer_range": 0.02,
    "intermediate_size": 16384, "max_position_embeddings": 8192, "model_type": "gemma", "num_attention_heads": 8,
    "num_hidden_layers": 18, "num_key_value_heads": 1, "rms_norm_eps": 1e-06, "rope_scaling": null, "rope_theta": 10000.0,
    "vocab_size": 256000})");
}
Json Gemma2() {
  return Json::parse(R"({"architectures": ["Gemma2ForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
    "attn_logit_softcapping": 50.0, "cache_implementation": "hybrid", "final_logit_softcapping": 30.0, "head_dim": 256,
    "hidden_act": "gelu_pytorch_tanh", "hidden_activation": "gelu_pytorch_tanh", "hidden_size": 2304, "initializer_range": 0.02,
    "intermediate_size": 9216, "max_position_embeddings": 8192, "model_type": "gemma2", "num_attention_heads": 8,
    "num_hidden_layers": 26, "num_key_value_heads": 4, "query_pre_attn_scalar": 256, "rms_norm_eps": 1e-06,
    "rope_theta": 10000.0, "sliding_window": 4096, "vocab_size": 256000})");
}

// With the keys and values of the released config.json of GPT-2.
Json Gpt2() {
  return Json::parse(R"({"activation_function": "gelu_new", "architectures": ["GPT2LMHeadModel"], "attn_pdrop": 0.1,
    "bos_token_id": 50256, "embd_pdrop": 0.1, "eos_token_id": 50256, "initializer_range": 0.02, "layer_norm_epsilon": 1e-05,
    "model_type": "gpt2", "n_ctx": 1024, "n_embd": 768, "n_head": 12, "n_layer": 12, "n_positions": 1024, "resid_pdrop": 0.1,
    "summary_type": "cls_index", "task_specific_params": {"text-generation": {"do_sample": true}}, "vocab_size": 50257})");
}

v1::Model Parse(const Json& json) {
  const auto model = ParseHfConfig(json.dump(), "test");
  EXPECT_TRUE(model.ok()) << model.status();
  return model.value_or(v1::Model());
}

// The model is what `text` says, its config.json apart.
void ExpectModel(v1::Model model, const std::string& text) {
  v1::Model expected;
  ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &expected)) << text;
  model.clear_config_json();
  EXPECT_EQ(model.DebugString(), expected.DebugString());
}

TEST(ParseHfConfig, Llama) {
  const v1::Model model = Parse(Llama());
  ExpectModel(model, R"(name: "test" architecture: LLAMA vocab_size: 128256 hidden_size: 4096 intermediate_size: 14336
    num_hidden_layers: 32 num_attention_heads: 32 num_key_value_heads: 8 head_dim: 128 max_position_embeddings: 131072
    norm_eps: 1e-5 rope_theta: 500000 initializer_range: 0.02 rope_scaling {
      factor: 8 low_freq_factor: 1 high_freq_factor: 4 original_max_position_embeddings: 8192 })");
  EXPECT_EQ(model.config_json(), Llama().dump());
}

TEST(ParseHfConfig, LlamaDefaults) {
  Json json = Llama();
  for (const char* key : {"num_key_value_heads", "rope_scaling", "rope_theta", "tie_word_embeddings", "attention_bias",
                          "mlp_bias", "rms_norm_eps", "hidden_act", "initializer_range", "architectures"}) {
    json.erase(key);
  }
  const v1::Model model = Parse(json);
  EXPECT_EQ(model.num_key_value_heads(), 32);
  EXPECT_FALSE(model.has_rope_scaling());
  EXPECT_EQ(model.rope_theta(), 10000);
  EXPECT_EQ(model.norm_eps(), 1e-6);
  EXPECT_FALSE(model.tie_word_embeddings());
}

TEST(ParseHfConfig, HeadDimNeedNotBeHiddenSizeByHeads) {
  Json json = Llama();
  json["head_dim"] = 64;
  EXPECT_EQ(Parse(json).head_dim(), 64);
  json["head_dim"] = nullptr;
  EXPECT_EQ(Parse(json).head_dim(), 128);
}

TEST(ParseHfConfig, RopeParametersOfNewerTransformers) {
  Json json = Llama();
  Json rope = json["rope_scaling"];
  rope["rope_theta"] = 250000.0;
  json.erase("rope_theta");
  json.erase("rope_scaling");
  json["rope_parameters"] = rope;
  EXPECT_EQ(Parse(json).rope_theta(), 250000);
  EXPECT_EQ(Parse(json).rope_scaling().factor(), 8);
  json["rope_parameters"] = {{"rope_type", "default"}, {"rope_theta", 20000}};
  EXPECT_EQ(Parse(json).rope_theta(), 20000);
  EXPECT_FALSE(Parse(json).has_rope_scaling());
}

TEST(ParseHfConfig, Gpt2) {
  ExpectModel(Parse(Gpt2()), R"(name: "test" architecture: GPT2 vocab_size: 50257 hidden_size: 768 intermediate_size: 3072
    num_hidden_layers: 12 num_attention_heads: 12 num_key_value_heads: 12 head_dim: 64 max_position_embeddings: 1024
    norm_eps: 1e-5 tie_word_embeddings: true initializer_range: 0.02 embd_pdrop: 0.1 attn_pdrop: 0.1 resid_pdrop: 0.1)");
}

TEST(ParseHfConfig, Gpt2InnerWidthAndUntied) {
  Json json = Gpt2();
  json["n_inner"] = nullptr;
  EXPECT_EQ(Parse(json).intermediate_size(), 3072);
  json["n_inner"] = 1000;
  json["tie_word_embeddings"] = false;
  json["activation_function"] = "gelu_pytorch_tanh";
  EXPECT_EQ(Parse(json).intermediate_size(), 1000);
  EXPECT_FALSE(Parse(json).tie_word_embeddings());
}

TEST(ParseHfConfig, FamiliesThatDifferFromLlamaByALittle) {
  const v1::Model mistral = Parse(Mistral()), qwen2 = Parse(Qwen2()), qwen3 = Parse(Qwen3()), gemma = Parse(Gemma());
  EXPECT_EQ(mistral.architecture(), v1::MISTRAL);
  EXPECT_EQ(mistral.sliding_window(), 4096);
  EXPECT_FALSE(mistral.qkv_bias() || mistral.qk_norm());
  EXPECT_EQ(qwen2.architecture(), v1::QWEN2);
  EXPECT_TRUE(qwen2.qkv_bias() && !qwen2.qk_norm());
  EXPECT_EQ(qwen2.sliding_window(), 0);
  EXPECT_EQ(qwen2.head_dim(), 128);
  EXPECT_EQ(qwen3.architecture(), v1::QWEN3);
  EXPECT_TRUE(qwen3.qk_norm() && !qwen3.qkv_bias());
  EXPECT_EQ(qwen3.sliding_window(), 0);
  EXPECT_EQ(gemma.architecture(), v1::GEMMA);
  EXPECT_TRUE(gemma.tie_word_embeddings());
  EXPECT_EQ(gemma.head_dim(), 256);
  EXPECT_EQ(gemma.num_key_value_heads(), 1);
  EXPECT_FALSE(gemma.qkv_bias() || gemma.qk_norm());
}

// "field = value" of what is refused when `key` is `value` (null: removed).
std::string Refusal(Json json, const std::string& key, const Json& value) {
  value.is_null() ? void(json.erase(key)) : void(json[key] = value);
  const auto model = ParseHfConfig(json.dump(), "test");
  const auto violation = GetFieldViolation(model.status());
  if (!violation) return "accepted";
  EXPECT_FALSE(violation->remedy().empty());
  return violation->field() + " = " + violation->value();
}

// As transformers 4.57 has them.
TEST(ParseHfConfig, DefaultsOfTheFamilies) {
  const auto of = [](Json json) {
    for (const char* key : {"num_key_value_heads", "head_dim", "max_position_embeddings", "rms_norm_eps", "rope_theta",
                            "hidden_act", "tie_word_embeddings", "architectures", "sliding_window"}) {
      json.erase(key);
    }
    return Parse(json);
  };
  EXPECT_EQ(of(Mistral()).sliding_window(), 4096);
  EXPECT_EQ(of(Mistral()).num_key_value_heads(), 8);
  EXPECT_EQ(of(Mistral()).max_position_embeddings(), 131072);
  EXPECT_EQ(of(Qwen3()).head_dim(), 128);
  EXPECT_EQ(of(Qwen3()).num_key_value_heads(), 32);
  Json few_heads = Gemma();
  few_heads.erase("num_key_value_heads");
  EXPECT_EQ(Refusal(few_heads, "model_type", "gemma"), "config.json: num_key_value_heads = ") << "16 do not divide 8";
  const auto gemma = [&](Json json) {
    json["num_attention_heads"] = 16;
    return of(json);
  };
  EXPECT_EQ(gemma(Gemma()).num_key_value_heads(), 16);
  EXPECT_EQ(gemma(Gemma()).head_dim(), 256);
  EXPECT_EQ(gemma(Gemma()).max_position_embeddings(), 8192);
  EXPECT_TRUE(gemma(Gemma()).tie_word_embeddings());
  EXPECT_EQ(gemma(Gemma()).norm_eps(), 1e-6);
  Json null_heads = Mistral();
  null_heads["num_key_value_heads"] = nullptr;
  EXPECT_EQ(Parse(null_heads).num_key_value_heads(), 32) << "null is as many as of queries";
}

TEST(ParseHfConfig, WindowsOfAllLayersOrNone) {
  Json json = Mistral();
  json["sliding_window"] = nullptr;
  EXPECT_EQ(Parse(json).sliding_window(), 0);
  for (Json qwen : {Qwen2(), Qwen3()}) {
    const int64_t layers = qwen["num_hidden_layers"];
    qwen["use_sliding_window"] = true;
    qwen["sliding_window"] = 512;
    EXPECT_EQ(Parse(qwen).sliding_window(), 0) << "from layer max_window_layers on: none";
    qwen["max_window_layers"] = 0;
    EXPECT_EQ(Parse(qwen).sliding_window(), 512);
    qwen["max_window_layers"] = layers - 1;
    const auto mixed = GetFieldViolation(ParseHfConfig(qwen.dump(), "x").status());
    EXPECT_EQ(mixed->field(), "config.json: max_window_layers");
    qwen["layer_types"] = std::vector<std::string>(layers, "sliding_attention");
    EXPECT_EQ(Parse(qwen).sliding_window(), 512);
    qwen["layer_types"][0] = "full_attention";
    EXPECT_EQ(GetFieldViolation(ParseHfConfig(qwen.dump(), "x").status())->field(), "config.json: layer_types");
    qwen["layer_types"] = std::vector<std::string>(layers, "full_attention");
    EXPECT_EQ(Parse(qwen).sliding_window(), 0);
    qwen["layer_types"].erase(0);
    EXPECT_EQ(GetFieldViolation(ParseHfConfig(qwen.dump(), "x").status())->field(), "config.json: layer_types");
    qwen["layer_types"] = std::vector<std::string>(layers, "sliding_attention");
    qwen["use_sliding_window"] = false;
    EXPECT_EQ(GetFieldViolation(ParseHfConfig(qwen.dump(), "x").status())->field(), "config.json: layer_types");
  }
}

TEST(ParseHfConfig, Gemma2IsTheCatalogs) {
  v1::Model model = Parse(Gemma2());
  model.clear_config_json();
  v1::Model known = *FindModel("google/gemma-2-2b");
  known.set_name(model.name());
  EXPECT_EQ(model.DebugString(), known.DebugString());
  Json few = Gemma2();  // transformers has these defaults
  for (const char* key : {"attn_logit_softcapping", "final_logit_softcapping", "head_dim", "hidden_activation",
                          "max_position_embeddings", "num_key_value_heads", "query_pre_attn_scalar", "sliding_window"}) {
    few.erase(key);
  }
  v1::Model with_defaults = Parse(few);
  with_defaults.clear_config_json();
  EXPECT_EQ(with_defaults.DebugString(), model.DebugString());
}

TEST(ParseHfConfig, Gemma2sWindowsTakeTurns) {
  Json types = Json::array();
  for (int layer = 0; layer < 26; ++layer) types.push_back(layer % 2 == 0 ? "sliding_attention" : "full_attention");
  Json json = Gemma2();
  json["layer_types"] = types;
  EXPECT_TRUE(Parse(json).sliding_window_alternates());
  EXPECT_EQ(Refusal(json, "num_hidden_layers", 25).substr(0, 25), "config.json: layer_types ");
  std::swap(types[2], types[3]);
  EXPECT_EQ(Refusal(Gemma2(), "layer_types", types).substr(0, 25), "config.json: layer_types ");
  for (const char* key : {"attn_logit_softcapping", "final_logit_softcapping", "sliding_window"}) {
    Json without = Gemma2();
    without[key] = nullptr;
    EXPECT_EQ(Refusal(without, "model_type", "gemma2"), std::string("config.json: ") + key + " = ");
    EXPECT_EQ(Refusal(Gemma2(), key, 0), std::string("config.json: ") + key + " = 0");
  }
  EXPECT_EQ(Refusal(Gemma2(), "hidden_activation", "gelu"), "config.json: hidden_activation = gelu");
  EXPECT_EQ(Refusal(Gemma2(), "query_pre_attn_scalar", -1), "config.json: query_pre_attn_scalar = -1");
}

// Megatron's, with dropouts that sharing keys and a parallel block rule out.
Json Gpt() {
  Json json = Gpt2();
  json.update({{"architectures", Json::array({"GPTModel"})},
               {"model_type", "gpt"},
               {"num_key_value_heads", 4},
               {"parallel_block", true},
               {"attn_pdrop", 0.0},
               {"resid_pdrop", 0.0}});
  return json;
}

TEST(ParseHfConfig, GptOfMegatron) {
  ExpectModel(Parse(Gpt()), R"(name: "test" architecture: GPT2 vocab_size: 50257 hidden_size: 768 intermediate_size: 3072
    num_hidden_layers: 12 num_attention_heads: 12 num_key_value_heads: 4 head_dim: 64 max_position_embeddings: 1024
    norm_eps: 1e-5 tie_word_embeddings: true initializer_range: 0.02 embd_pdrop: 0.1 parallel_block: true)");
  EXPECT_EQ(Refusal(Gpt(), "num_key_value_heads", 5), "config.json: num_key_value_heads = 5");
  EXPECT_EQ(Refusal(Gpt(), "attn_pdrop", 0.1), "config.json: attn_pdrop = 0.1");
  EXPECT_EQ(Refusal(Gpt(), "resid_pdrop", 0.1), "config.json: resid_pdrop = 0.1");
  EXPECT_EQ(Refusal(Gpt(), "model_type", "gpt2"), "config.json: model_type = gpt2");
  EXPECT_EQ(Refusal(Gpt2(), "parallel_block", true), "config.json: parallel_block = true") << "transformers would not read it";
  EXPECT_EQ(Refusal(Gpt2(), "num_key_value_heads", 4), "config.json: num_key_value_heads = 4");
}

TEST(ParseHfConfig, MissingKeysAreNamed) {
  for (const char* key : {"vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads"}) {
    EXPECT_EQ(Refusal(Llama(), key, nullptr), std::string("config.json: ") + key + " = ");
  }
  for (const char* key : {"vocab_size", "n_embd", "n_layer", "n_head", "n_positions"}) {
    EXPECT_EQ(Refusal(Gpt2(), key, nullptr), std::string("config.json: ") + key + " = ");
  }
}

TEST(ParseHfConfig, RefusesWhatIsNotSupportedByName) {
  for (const char* name : {"Gemma3ForCausalLM", "Qwen3MoeForCausalLM", "MixtralForCausalLM"}) {
    EXPECT_EQ(Refusal(Llama(), "architectures", {name}), std::string("config.json: architectures = [\"") + name + "\"]");
  }
  EXPECT_EQ(Refusal(Llama(), "model_type", "mistral"), "config.json: model_type = mistral");
  EXPECT_EQ(Refusal(Gpt2(), "model_type", "llama"), "config.json: model_type = llama");
  EXPECT_EQ(Refusal(Llama(), "attention_bias", true), "config.json: attention_bias = true");
  EXPECT_EQ(Refusal(Llama(), "mlp_bias", true), "config.json: mlp_bias = true");
  EXPECT_EQ(Refusal(Llama(), "hidden_act", "gelu"), "config.json: hidden_act = gelu");
  EXPECT_EQ(Refusal(Llama(), "attention_dropout", 0.1), "config.json: attention_dropout = 0.1");
  EXPECT_EQ(Refusal(Llama(), "rope_scaling", {{"rope_type", "yarn"}, {"factor", 2.0}}), "config.json: rope_type = yarn");
  EXPECT_EQ(Refusal(Llama(), "rope_scaling", {{"type", "linear"}, {"factor", 2.0}}), "config.json: type = linear");
  EXPECT_EQ(Refusal(Llama(), "quantization_config", {{"bits", 4}}), "config.json: quantization_config = {\"bits\":4}");
  EXPECT_EQ(Refusal(Llama(), "partial_rotary_factor", 0.5), "config.json: partial_rotary_factor = 0.5");
  EXPECT_EQ(Refusal(Llama(), "pruned_heads", {{"0", {1}}}), "config.json: pruned_heads = {\"0\":[1]}");
  EXPECT_EQ(Refusal(Gpt2(), "pruned_heads", {{"0", {1}}}), "config.json: pruned_heads = {\"0\":[1]}");
  EXPECT_EQ(Refusal(Gpt2(), "activation_function", "relu"), "config.json: activation_function = relu");
  EXPECT_EQ(Refusal(Gpt2(), "activation_function", "gelu"), "config.json: activation_function = gelu");
  EXPECT_EQ(Refusal(Gpt2(), "scale_attn_weights", false), "config.json: scale_attn_weights = false");
  EXPECT_EQ(Refusal(Gpt2(), "scale_attn_by_inverse_layer_idx", true), "config.json: scale_attn_by_inverse_layer_idx = true");
  EXPECT_EQ(Refusal(Gpt2(), "reorder_and_upcast_attn", true), "config.json: reorder_and_upcast_attn = true");
  EXPECT_EQ(Refusal(Gpt2(), "add_cross_attention", true), "config.json: add_cross_attention = true");
  EXPECT_EQ(Refusal(Mistral(), "layer_types", {"full_attention"}), "config.json: layer_types = [\"full_attention\"]");
  EXPECT_EQ(Refusal(Mistral(), "sliding_window", 0), "config.json: sliding_window = 0");
  EXPECT_EQ(Refusal(Qwen2(), "rope_scaling", {{"type", "yarn"}, {"factor", 4.0}}), "config.json: type = yarn");
  EXPECT_EQ(Refusal(Qwen2(), "hidden_act", "gelu"), "config.json: hidden_act = gelu");
  EXPECT_EQ(Refusal(Qwen3(), "attention_bias", true), "config.json: attention_bias = true");
  EXPECT_EQ(Refusal(Gemma(), "hidden_act", "silu"), "config.json: hidden_act = silu");
  EXPECT_EQ(Refusal(Gemma(), "hidden_act", "gelu"), "config.json: hidden_act = gelu");
  EXPECT_EQ(Refusal(Gemma(), "hidden_activation", "gelu"), "config.json: hidden_activation = gelu");
  EXPECT_EQ(Refusal(Gemma(), "use_bidirectional_attention", true), "config.json: use_bidirectional_attention = true");
}

// transformers refuses these, or reads one of two values: the other one, or another one in another version.
TEST(ParseHfConfig, RefusesWhatTransformersReadsOtherwise) {
  const Json scaling = Llama()["rope_scaling"];
  const auto with = [&](const std::string& key, const Json& value) {
    Json changed = scaling;
    value.is_null() ? void(changed.erase(key)) : void(changed[key] = value);
    return changed;
  };
  EXPECT_EQ(Refusal(Llama(), "rope_scaling", with("rope_type", nullptr)), "config.json: rope_type = ");
  EXPECT_EQ(Refusal(Llama(), "rope_scaling", with("type", "default")), "config.json: type = default");
  EXPECT_EQ(Refusal(Llama(), "rope_scaling", with("partial_rotary_factor", 0.5)), "config.json: partial_rotary_factor = 0.5");
  EXPECT_EQ(Refusal(Llama(), "rope_scaling", with("rope_theta", 20000.0)), "config.json: rope_theta = 500000.0");
  EXPECT_EQ(Refusal(Llama(), "rope_parameters", with("factor", 4.0)).substr(0, 25), "config.json: rope_scaling");
  EXPECT_EQ(Refusal(Llama(), "rope_parameters", scaling), "accepted");
  EXPECT_EQ(Refusal(Llama(), "rope_scaling", with("type", "llama3")), "accepted");
  EXPECT_EQ(Refusal(Llama(), "rope_scaling", with("rope_theta", 500000.0)), "accepted");

  // The names of Llama's sizes, which GPT-2 has too; null, which is no default.
  EXPECT_EQ(Refusal(Gpt2(), "hidden_size", 512), "config.json: hidden_size = 512");
  EXPECT_EQ(Refusal(Gpt2(), "num_hidden_layers", 6), "config.json: num_hidden_layers = 6");
  EXPECT_EQ(Refusal(Gpt2(), "num_attention_heads", 8), "config.json: num_attention_heads = 8");
  EXPECT_EQ(Refusal(Gpt2(), "max_position_embeddings", 512), "config.json: max_position_embeddings = 512");
  EXPECT_EQ(Refusal(Gpt2(), "hidden_size", 768), "accepted");
  Json null_tie = Gpt2();
  null_tie["tie_word_embeddings"] = nullptr;
  const auto violation = GetFieldViolation(ParseHfConfig(null_tie.dump(), "x").status());
  ASSERT_TRUE(violation.has_value());
  EXPECT_EQ(violation->field(), "config.json: tie_word_embeddings");
}

TEST(ParseHfConfig, RefusesWhatCannotBe) {
  EXPECT_EQ(Refusal(Llama(), "hidden_size", 0), "config.json: hidden_size = 0");
  EXPECT_EQ(Refusal(Llama(), "hidden_size", "4096"), "config.json: hidden_size = 4096");
  EXPECT_EQ(Refusal(Llama(), "hidden_size", 4095), "config.json: num_attention_heads = 32");
  EXPECT_EQ(Refusal(Llama(), "num_key_value_heads", 5), "config.json: num_key_value_heads = 5");
  EXPECT_EQ(Refusal(Llama(), "head_dim", 33), "config.json: head_dim = 33");
  EXPECT_EQ(Refusal(Llama(), "rms_norm_eps", -1), "config.json: rms_norm_eps = -1");
  EXPECT_EQ(Refusal(Llama(), "vocab_size", 1e12), "config.json: vocab_size = 1000000000000.0");
  EXPECT_EQ(Refusal(Llama(), "tie_word_embeddings", 1), "config.json: tie_word_embeddings = 1");
  EXPECT_EQ(Refusal(Llama(), "rope_scaling", 3), "config.json: rope_scaling = 3");
  EXPECT_EQ(Refusal(Llama(), "rope_scaling", {{"rope_type", "llama3"}, {"factor", 8.0}}), "config.json: low_freq_factor = ");
  EXPECT_EQ(Refusal(Gpt2(), "n_head", 7), "config.json: n_head = 7");
  EXPECT_EQ(Refusal(Gpt2(), "attn_pdrop", 1.0), "config.json: attn_pdrop = 1.0");
}

// Each number may pass, and the model's bytes not fit into 64 bits.
TEST(ParseHfConfig, RefusesMoreThanCanBeCounted) {
  Json config = Llama();
  config["hidden_size"] = 1'000'000'000;
  config["num_attention_heads"] = 1'000'000;
  config["num_key_value_heads"] = 1'000'000;
  config["intermediate_size"] = 1'000'000'000;
  const auto fault = GetFieldViolation(ParseHfConfig(config.dump(), "x").status());
  ASSERT_TRUE(fault.has_value());
  EXPECT_EQ(fault->field(), "config.json");
  EXPECT_NE(fault->value().find("parameters"), std::string::npos) << fault->value();
  EXPECT_NE(fault->remedy().find("check the sizes"), std::string::npos) << fault->remedy();
}

TEST(ParseHfConfig, RefusesWhatIsNoJson) {
  for (const char* text : {"", "{", "[]", "3", "\xff\xfe"}) {
    EXPECT_EQ(GetFieldViolation(ParseHfConfig(text, "x").status())->field(), "config.json") << text;
  }
}

TEST(ReadHfConfig, NamesTheModelAfterItsFolder) {
  const std::string folder = testing::TempDir() + "/tiny";
  std::filesystem::create_directories(folder);
  std::ofstream(folder + "/config.json") << Llama().dump(1);
  EXPECT_EQ(ReadHfConfig(folder)->name(), "tiny");
  EXPECT_EQ(ReadHfConfig(folder + "/")->name(), "tiny");
  EXPECT_EQ(ReadHfConfig(folder + "/config.json")->config_json(), Llama().dump(1));
  std::ofstream(folder + "/config.json") << "{}";
  const auto broken = ReadHfConfig(folder);
  EXPECT_NE(std::string(broken.status().message()).find(folder), std::string::npos);
  EXPECT_EQ(GetFieldViolation(broken.status())->field(), "config.json: architectures");
  std::filesystem::remove_all(folder);
  EXPECT_EQ(ReadHfConfig(folder).status().code(), absl::StatusCode::kNotFound);
}

TEST(WriteHfConfig, GivesBackWhatWasRead) {
  for (const std::string& text : {Llama().dump(4), Gpt2().dump(), Qwen2().dump()}) {
    EXPECT_EQ(WriteHfConfig(*ParseHfConfig(text, "x")), text);
  }
}

TEST(WriteHfConfig, SaysWhatTransformersNeeds) {
  Json windows = Qwen3();
  windows.update({{"use_sliding_window", true}, {"sliding_window", 512}, {"max_window_layers", 0}});
  Json no_windows = Qwen2();
  no_windows["sliding_window"] = nullptr;
  for (const Json& original : {Llama(), Gpt2(), Gpt(), Mistral(), no_windows, Qwen3(), windows, Gemma(), Gemma2()}) {
    v1::Model model = Parse(original);
    model.clear_config_json();
    const Json written = Json::parse(WriteHfConfig(model));
    for (const auto& [key, value] : written.items()) {
      if (!original.contains(key) || key == "torch_dtype") continue;
      EXPECT_EQ(nlohmann::json(original[key]), nlohmann::json(value)) << key;
    }
    EXPECT_EQ(written["architectures"], original["architectures"]);
    v1::Model back = Parse(written);
    back.clear_config_json();
    EXPECT_EQ(back.SerializeAsString(), model.SerializeAsString());
  }
}

Json Exported(const Json& config, std::optional<int32_t> begin, std::optional<int32_t> end) {
  return Json::parse(WriteHfConfigOfExport(Parse(config), begin, end));
}

TEST(WriteHfConfigOfExport, SaysTypeAndIdsOfWhatWasTrained) {
  const Json theirs = Exported(Llama(), 128000, 128001);
  EXPECT_EQ(theirs["torch_dtype"], "float32");
  EXPECT_EQ(theirs["bos_token_id"], 128000);
  EXPECT_EQ(theirs["eos_token_id"], 128001);
  Json only_type = Llama();
  only_type["torch_dtype"] = "float32";
  EXPECT_EQ(theirs, only_type) << "all else stays, and its order";
  // Bytes have no such ids, and transformers' own defaults are texts.
  const Json bytes = Exported(Gpt2(), {}, {});
  EXPECT_TRUE(bytes.contains("bos_token_id") && bytes["bos_token_id"].is_null());
  EXPECT_TRUE(bytes.contains("eos_token_id") && bytes["eos_token_id"].is_null());
  EXPECT_FALSE(bytes.contains("torch_dtype"));
  EXPECT_EQ(Exported(Gpt2(), 5, 6)["eos_token_id"], 6);
  // The instruction-tuned models end with any of several.
  Json several = Llama();
  several["eos_token_id"] = {128001, 128008, 128009};
  EXPECT_EQ(Exported(several, 128000, 128001)["eos_token_id"], several["eos_token_id"]);
  EXPECT_EQ(Exported(several, 128000, 7)["eos_token_id"], 7);
}

TEST(WriteHfConfigOfExport, LeavesATextInWhichNothingChanges) {
  Json json = Llama();
  json["torch_dtype"] = "float32";
  const std::string text = json.dump(7);
  EXPECT_EQ(WriteHfConfigOfExport(*ParseHfConfig(text, "x"), 128000, 128001), text);
}

}  // namespace
}  // namespace legoai::model
