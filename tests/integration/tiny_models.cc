// The small models of cases.h, and what a case is compared with.
#include "core/model/catalog.h"
#include "core/recipe/recipe.h"
#include "tests/integration/cases.h"

namespace legoai::integration {

v1::Model TinyLlama() {
  v1::Model model =
      model::Llama({.vocab = 62, .hidden = 32, .intermediate = 54, .layers = 3, .heads = 4, .kv_heads = 2, .positions = 64});
  model.set_name("tiny-llama");
  return model;
}

v1::Model TinyGpt2() {
  v1::Model model = TinyLlama();
  model.set_name("tiny-gpt2");
  model.set_architecture(v1::GPT2);
  model.set_vocab_size(61);
  model.set_intermediate_size(128);
  model.set_num_key_value_heads(4);
  model.set_tie_word_embeddings(true);
  model.set_embd_pdrop(0.1);
  model.set_attn_pdrop(0.1);
  model.set_resid_pdrop(0.1);
  return model;
}

v1::Model DeepLlama() {
  v1::Model model = TinyLlama();
  model.set_name("tiny-llama-deep");
  model.set_num_hidden_layers(6);
  return model;
}

v1::Model UntiedGpt2() {
  v1::Model model = TinyGpt2();
  model.set_name("tiny-gpt2-untied");
  model.set_tie_word_embeddings(false);
  return model;
}

v1::Model TinyMistral() {
  v1::Model model = TinyLlama();
  model.set_name("tiny-mistral");
  model.set_architecture(v1::MISTRAL);
  model.set_sliding_window(5);
  return model;
}

v1::Model TinyQwen2() {
  v1::Model model = TinyLlama();
  model.set_name("tiny-qwen2");
  model.set_architecture(v1::QWEN2);
  model.set_qkv_bias(true);
  return model;
}

// Heads are wider than hidden_size / num_attention_heads.
v1::Model TinyQwen3() {
  v1::Model model = TinyLlama();
  model.set_name("tiny-qwen3");
  model.set_architecture(v1::QWEN3);
  model.set_qk_norm(true);
  model.set_head_dim(12);
  return model;
}

// One key-value head, shared by all ranks.
v1::Model TinyGemma() {
  v1::Model model = TinyLlama();
  model.set_name("tiny-gemma");
  model.set_architecture(v1::GEMMA);
  model.set_intermediate_size(56);
  model.set_num_key_value_heads(1);
  model.set_head_dim(16);
  model.set_tie_word_embeddings(true);
  return model;
}

// The window of every second block, and caps that scores and logits come near.
v1::Model TinyGemma2() {
  v1::Model model = TinyGemma();
  model.set_name("tiny-gemma2");
  model.set_architecture(v1::GEMMA2);
  model.set_num_key_value_heads(2);
  model.set_sliding_window(5);
  model.set_sliding_window_alternates(true);
  model.set_attn_logit_softcapping(0.5);
  model.set_final_logit_softcapping(1);
  model.set_query_pre_attn_scalar(10);
  return model;
}

v1::Model DeepGpt2() {
  v1::Model model = TinyGpt2();
  model.set_name("tiny-gpt2-deep");
  model.set_num_hidden_layers(6);
  return model;
}

v1::Model SharedHeadsLlama() {
  v1::Model model = TinyLlama();
  model.set_name("tiny-llama-56");
  model.set_intermediate_size(56);
  return model;
}

bool IsRounded(const Case& test_case) {
  const v1::Training& training = test_case.recipe.training();
  return training.mixed_precision_param() != v1::FLOAT32 || training.dtype() != v1::FLOAT32;
}

Case Reference(const Case& test_case) {
  Case reference = test_case;
  reference.name = test_case.name + " on one process";
  reference.world_size = 1;
  auto* parallelism = reference.recipe.mutable_parallelism();
  *parallelism = parallel::DefaultRecipe().parallelism();
  parallelism->set_data_parallel_shard_degree(1);
  parallelism->set_disable_loss_parallel(true);
  auto* training = reference.recipe.mutable_training();
  training->set_local_batch_size(training->global_batch_size());
  training->set_mixed_precision_param(v1::FLOAT32);
  if (reference.recipe.optimizer().master_weights()) {  // the masters are what is trained
    training->set_dtype(v1::FLOAT32);
    reference.recipe.mutable_optimizer()->set_master_weights(false);
  }
  training->clear_initial_loss_scale();
  training->clear_loss_scale_growth_interval();
  *reference.recipe.mutable_activation_checkpoint() = parallel::DefaultRecipe().activation_checkpoint();
  return reference;
}

}  // namespace legoai::integration
