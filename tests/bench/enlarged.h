// Recipes of tests/integration/cases.h on models large enough to be bound by what they compute; their own are bound by dispatch.
#pragma once

#include "tests/integration/cases.h"

namespace legoai::integration {

// A few million parameters and sequences of 128 tokens.
inline Case Enlarged(Case test_case) {
  v1::Model& model = test_case.model;
  model.set_num_attention_heads(8);
  model.set_num_key_value_heads(model.architecture() == v1::GPT2 ? 8 : 4);
  model.set_head_dim(32);
  model.set_hidden_size(256);
  model.set_intermediate_size(model.architecture() == v1::GPT2 ? 1024 : 688);
  model.set_vocab_size(512);
  model.set_max_position_embeddings(256);
  test_case.recipe.mutable_training()->set_seq_len(128);
  return test_case;
}

}  // namespace legoai::integration
