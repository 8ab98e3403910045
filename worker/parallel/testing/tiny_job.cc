#include "worker/parallel/testing/tiny_job.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>

#include <functional>

#include "core/model/catalog.h"

namespace legoai::parallel::testing {

using at::Tensor;

v1::Model TinyLlama() {
  return model::Llama({.vocab = 12, .hidden = 16, .intermediate = 20, .layers = 4, .heads = 4, .kv_heads = 2, .positions = 64});
}

std::unique_ptr<model::LanguageModel> Build(const v1::Model& config, at::ScalarType dtype) {
  auto model = model::BuildModel(config);
  TORCH_CHECK(model.ok(), std::string(model.status().message()));
  (*model)->CreateBuffers(c10::kCPU, dtype, kSequence);
  return *std::move(model);
}

Tensor PartOf(const Tensor& whole, const ShardSpec& spec) {
  Tensor part = whole;
  for (size_t dim = 0; dim < spec.sizes.size(); ++dim) part = part.narrow(dim, spec.offsets[dim], spec.sizes[dim]);
  return part;
}

void Fill(model::LanguageModel* model, at::ScalarType dtype) {
  for (model::Parameter* parameter : model->Parameters()) {
    const uint64_t seed = std::hash<std::string>()(parameter->name());
    const Tensor noise =
        at::randn(parameter->spec.global_shape, at::detail::createCPUGenerator(seed), at::TensorOptions(at::kFloat));
    const double mean = parameter->init.kind == model::InitRule::Kind::kOnes ? 1 : 0;
    parameter->value = PartOf(noise * 0.3 + mean, parameter->spec).to(dtype).contiguous().clone().set_requires_grad(true);
  }
}

Tensor Tokens(int64_t rows, int64_t limit, uint64_t seed) {
  return at::randint(limit, {rows, kSequence}, at::detail::createCPUGenerator(seed), at::TensorOptions(at::kLong));
}

Reference RunReference(const v1::Model& config, at::ScalarType dtype, const LossFunction& loss, const Tensor& tokens,
                       const Tensor& targets, int64_t microbatches) {
  auto model = Build(config, dtype);
  Fill(model.get(), dtype);
  Reference reference{at::zeros({}, at::TensorOptions(at::kFloat)), {}};
  const int64_t rows = tokens.size(0) / microbatches;
  for (int64_t m = 0; m < microbatches; ++m) {
    const Tensor part = loss((*model)(tokens.narrow(0, m * rows, rows)), targets.narrow(0, m * rows, rows));
    part.backward();
    reference.loss.add_(part.detach());
  }
  for (model::Parameter* parameter : model->Parameters()) reference.gradients[parameter->name()] = parameter->value.grad();
  return reference;
}

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
  parallelism.set_context_parallel_degree(job.mesh.cp);
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
  options.schedule = resolved.MakeSchedule();
  options.microbatches = resolved.microbatches();
  options.activation_sizes = {resolved.microbatch_size(), resolved.seq_len() / (resolved.mesh().cp * resolved.mesh().tp),
                              parallelized.model->config().hidden_size()};
  options.activation = at::TensorOptions().dtype(parallelized.precision.param);
  return options;
}

}  // namespace legoai::parallel::testing
