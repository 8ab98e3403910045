#include "tests/integration/case_parts.h"

#include <string>

#include "core/recipe/recipe.h"

namespace legoai::integration {
namespace {

constexpr int64_t kGlobalBatch = 8, kSequence = 16;
constexpr double kMaxNorm = 0.5;  // below the gradients' norms, so that they are clipped

}  // namespace

Case Make(const Layout& layout, const v1::Model& model) {
  Case result;
  result.name = layout.name;
  result.model = model;
  result.world_size = layout.world();
  v1::Recipe& recipe = result.recipe;
  recipe = parallel::DefaultRecipe();
  auto* training = recipe.mutable_training();
  training->set_global_batch_size(kGlobalBatch);
  training->set_local_batch_size(kGlobalBatch / (layout.replicate * layout.shard));
  training->set_seq_len(kSequence);
  training->set_max_norm(kMaxNorm);
  training->set_mixed_precision_param(v1::FLOAT32);
  training->set_seed(17);
  auto* parallelism = recipe.mutable_parallelism();
  parallelism->set_data_parallel_replicate_degree(layout.replicate);
  parallelism->set_data_parallel_shard_degree(layout.shard);
  parallelism->set_context_parallel_degree(layout.cp);
  parallelism->set_context_parallel_load_balancer(layout.balance);
  parallelism->set_context_parallel_rotate_method(layout.rotation);
  parallelism->set_tensor_parallel_degree(layout.tp);
  parallelism->set_pipeline_parallel_degree(layout.pp);
  parallelism->set_pipeline_parallel_schedule(layout.schedule);
  parallelism->set_pipeline_parallel_microbatch_size(layout.microbatch);
  if (layout.layers_per_stage > 0) parallelism->set_pipeline_parallel_layers_per_stage(layout.layers_per_stage);
  parallelism->set_pipeline_parallel_first_stage_less_layers(layout.first_less);
  parallelism->set_pipeline_parallel_last_stage_less_layers(layout.last_less);
  parallelism->set_disable_loss_parallel(!layout.loss_parallel);
  return result;
}

Case Checkpointed(Case test_case) {
  test_case.name += "_ac";
  test_case.recipe.mutable_activation_checkpoint()->set_mode(v1::AC_FULL);
  return test_case;
}

Case EverySecondCheckpointed(Case test_case) {
  test_case.name += "_ac2";
  test_case.recipe.mutable_activation_checkpoint()->set_mode(v1::AC_SELECTIVE);
  return test_case;
}

Case KeepingOperators(Case test_case) {
  test_case.name += "_ac_op";
  test_case.recipe.mutable_activation_checkpoint()->set_mode(v1::AC_SELECTIVE);
  test_case.recipe.mutable_activation_checkpoint()->set_selective_ac_option("op");
  return test_case;
}

Case Accumulated(Case test_case) {
  test_case.name += "_accumulate2";
  auto* training = test_case.recipe.mutable_training();
  training->set_local_batch_size(training->local_batch_size() / 2);
  return test_case;
}

Case Bf16(Case test_case) {
  test_case.name += "_bf16";
  test_case.recipe.mutable_training()->set_mixed_precision_param(v1::BFLOAT16);
  return test_case;
}

Case WithZeroStage(int64_t stage, Case test_case) {
  test_case.name += "_zero" + std::to_string(stage);
  test_case.recipe.mutable_parallelism()->set_zero_stage(stage);
  return test_case;
}

Case Prefetching(int64_t depth, Case test_case) {
  test_case.name += "_prefetch" + std::to_string(depth);
  test_case.recipe.mutable_parallelism()->set_fsdp_prefetch_depth(depth);
  return test_case;
}

Case GatheringAgain(Case test_case) {
  test_case.name += "_again";
  test_case.recipe.mutable_parallelism()->set_sequence_parallel_gather_in_backward(true);
  return test_case;
}

Case WithWholeTokens(Case test_case) {
  test_case.name += "_whole";
  test_case.recipe.mutable_parallelism()->set_sequence_parallel(false);
  return test_case;
}

}  // namespace legoai::integration
