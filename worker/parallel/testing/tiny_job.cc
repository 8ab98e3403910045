#include "worker/parallel/testing/tiny_job.h"

namespace legoai::parallel::testing {

v1::Model TinyGpt2() {
  v1::Model config = TinyLlama();
  config.set_architecture(v1::GPT2);
  config.set_num_key_value_heads(config.num_attention_heads());
  config.set_intermediate_size(4 * config.hidden_size());
  config.set_num_hidden_layers(2);
  config.set_tie_word_embeddings(true);
  config.set_embd_pdrop(0.2);
  config.set_attn_pdrop(0.2);
  config.set_resid_pdrop(0.2);
  return config;
}

v1::Recipe RecipeOf(const TinyJob& job) {
  v1::Recipe recipe;
  auto& training = *recipe.mutable_training();
  training.set_global_batch_size(kGlobalBatch);
  training.set_local_batch_size(kGlobalBatch / (job.mesh.dp() * job.accumulation));
  training.set_seq_len(kSequence);
  training.set_mixed_precision_param(job.param);
  auto& parallelism = *recipe.mutable_parallelism();
  parallelism.set_data_parallel_replicate_degree(job.mesh.dp_replicate);
  parallelism.set_data_parallel_shard_degree(job.mesh.dp_shard);
  parallelism.set_fsdp_reshard_after_forward(job.reshard);
  parallelism.set_tensor_parallel_degree(job.mesh.tp);
  parallelism.set_disable_loss_parallel(true);
  parallelism.set_pipeline_parallel_degree(job.mesh.pp);
  parallelism.set_pipeline_parallel_microbatch_size(2);
  recipe.mutable_activation_checkpoint()->set_mode(job.checkpoint ? v1::AC_FULL : v1::AC_NONE);
  return recipe;
}

StageOptions StageOptionsOf(const ResolvedRecipe& resolved, const ParallelizedModel& parallelized, int64_t rank) {
  StageOptions options;
  options.rank = resolved.mesh().IndexOf(mesh::Dim::kPp, rank);
  options.ranks = resolved.mesh().pp;
  options.microbatches = resolved.microbatches();
  options.activation_sizes = {resolved.microbatch_size(), resolved.seq_len() / resolved.mesh().tp,
                              parallelized.model->config().hidden_size()};
  options.activation = at::TensorOptions().dtype(parallelized.precision.param);
  return options;
}

}  // namespace legoai::parallel::testing
