// Hugging Face's config.json: a model that is accepted is written and read as the same, and its numbers can be reckoned with.
#include <gtest/gtest.h>

#include "core/model/hf_config.h"
#include "core/model/model_facts.h"
#include "tests/fuzz/fuzz.h"

namespace legoai::fuzz {
namespace {

absl::Status Parse(const std::string& text) {
  auto model = model::ParseHfConfig(text, "m");
  if (!model.ok()) return model.status();
  EXPECT_EQ(model->config_json(), text);
  EXPECT_GT(model::ParameterCount(*model), 0);
  EXPECT_GT(model::FlopsPerToken(*model, 1), 0);
  model->clear_config_json();
  auto again = model::ParseHfConfig(model::WriteHfConfig(*model), "m");
  EXPECT_TRUE(again.ok()) << again.status() << model->DebugString();
  if (!again.ok()) return absl::OkStatus();
  again->clear_config_json();
  EXPECT_EQ(again->DebugString(), model->DebugString());
  return absl::OkStatus();
}

TEST(Fuzz, HfConfig) {
  Fuzz(
      {"hf_config",
       JsonWords("llama|gpt2|architectures|LlamaForCausalLM|GPT2LMHeadModel|MistralForCausalLM|Qwen2ForCausalLM|Qwen3ForCausalLM|"
                 "GemmaForCausalLM|Gemma2ForCausalLM|attn_logit_softcapping|query_pre_attn_scalar|sliding_window|"
                 "layer_types|head_dim|rope_scaling|rope_parameters|rope_theta|rope_type|type|"
                 "llama3|default|factor|vocab_size|num_key_value_heads|n_inner|quantization_config|pruned_heads|"
                 "partial_rotary_factor"),
       Parse});
}

}  // namespace
}  // namespace legoai::fuzz
