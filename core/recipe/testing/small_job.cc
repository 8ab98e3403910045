#include "core/recipe/testing/small_job.h"

namespace legoai::parallel::testing {

v1::Model SmallLlama() {
  v1::Model model;
  model.set_architecture(v1::LLAMA);
  model.set_vocab_size(256);
  model.set_hidden_size(96);
  model.set_intermediate_size(240);
  model.set_num_hidden_layers(6);
  model.set_num_attention_heads(12);
  model.set_num_key_value_heads(6);
  model.set_head_dim(8);
  model.set_max_position_embeddings(64);
  return model;
}

v1::Recipe Degrees(int64_t replicate, int64_t shard, int64_t tp, int64_t pp) {
  v1::Recipe recipe;
  recipe.mutable_parallelism()->set_data_parallel_replicate_degree(replicate);
  recipe.mutable_parallelism()->set_data_parallel_shard_degree(shard);
  recipe.mutable_parallelism()->set_tensor_parallel_degree(tp);
  recipe.mutable_parallelism()->set_pipeline_parallel_degree(pp);
  recipe.mutable_training()->set_local_batch_size(4);
  recipe.mutable_training()->set_seq_len(48);
  return recipe;
}

}  // namespace legoai::parallel::testing
