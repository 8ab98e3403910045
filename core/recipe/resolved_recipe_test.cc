#include "core/recipe/resolved_recipe.h"

#include <gtest/gtest.h>

#include "core/model/hf_config.h"
#include "core/recipe/recipe.h"
#include "core/recipe/testing/small_job.h"
#include "proto/errors.h"

namespace legoai::parallel {
namespace {

using testing::Degrees;

v1::Model Llama() {
  v1::Model model = testing::SmallLlama();
  model.set_num_hidden_layers(7);
  return model;
}

ResolvedRecipe Make(const v1::Recipe& recipe, int64_t world_size) {
  auto resolved = ResolvedRecipe::Create(recipe, Llama(), world_size);
  EXPECT_TRUE(resolved.ok()) << resolved.status();
  return *resolved;
}

TEST(ResolvedRecipe, DerivesShardDegreeAndGlobalBatch) {
  const ResolvedRecipe resolved = Make(Degrees(2, -1, 2, 2), 24);
  EXPECT_EQ(resolved.mesh().dp_shard, 3);
  EXPECT_EQ(resolved.mesh().dp(), 6);
  EXPECT_EQ(resolved.global_batch(), 24);
  EXPECT_EQ(resolved.accumulation(), 1);
  EXPECT_EQ(resolved.microbatch_size(), 1);
  EXPECT_EQ(resolved.microbatches(), 4);
}

TEST(ResolvedRecipe, AccumulatesWithoutPipelineInLocalBatches) {
  v1::Recipe recipe = Degrees(1, 2, 1, 1);
  recipe.mutable_training()->set_global_batch_size(24);
  recipe.mutable_parallelism()->set_pipeline_parallel_microbatch_size(2);
  const ResolvedRecipe resolved = Make(recipe, 2);
  EXPECT_EQ(resolved.accumulation(), 3);
  EXPECT_EQ(resolved.microbatches(), 3);
  EXPECT_EQ(resolved.microbatch_size(), 4);
}

TEST(ResolvedRecipe, PipelinesAllLocalBatchesInMicrobatches) {
  v1::Recipe recipe = Degrees(1, 2, 1, 2);
  recipe.mutable_training()->set_global_batch_size(24);
  recipe.mutable_parallelism()->set_pipeline_parallel_microbatch_size(2);
  const ResolvedRecipe resolved = Make(recipe, 4);
  EXPECT_EQ(resolved.accumulation(), 3);
  EXPECT_EQ(resolved.microbatches(), 6);
}

TEST(ResolvedRecipe, UsesDefaultsForWhatIsUnset) {
  v1::Recipe recipe;
  const ResolvedRecipe resolved = Make(recipe, 3);
  EXPECT_EQ(resolved.mesh().dp_shard, 3);
  EXPECT_EQ(resolved.global_batch(), 24);
  EXPECT_EQ(resolved.seq_len(), 2048);
}

TEST(ResolvedRecipe, ReshardsByPolicy) {
  EXPECT_TRUE(Make(Degrees(1, 2, 1, 1), 2).reshard_after_forward());
  EXPECT_FALSE(Make(Degrees(1, 2, 1, 2), 4).reshard_after_forward());
  v1::Recipe never = Degrees(1, 2, 1, 1);
  never.mutable_parallelism()->set_fsdp_reshard_after_forward(v1::RESHARD_NEVER);
  EXPECT_FALSE(Make(never, 2).reshard_after_forward());
}

TEST(ResolvedRecipe, ZeroStagesShareLess) {
  const auto with_stage = [](int64_t stage, int64_t shard, int64_t pp) {
    v1::Recipe recipe = Degrees(1, shard, 1, pp);
    recipe.mutable_parallelism()->set_zero_stage(stage);
    return Make(recipe, shard * pp);
  };
  for (const int64_t stage : {1, 2, 3}) {
    SCOPED_TRACE(stage);
    EXPECT_EQ(with_stage(stage, 2, 1).parameters_stay_whole(), stage < 3);
    EXPECT_EQ(with_stage(stage, 2, 1).reshard_after_forward(), stage == 3);
    EXPECT_EQ(with_stage(stage, 2, 1).reduce_each_microbatch(), stage > 1);
    EXPECT_FALSE(with_stage(stage, 2, 2).reduce_each_microbatch()) << "a pipeline reduces once a step";
    EXPECT_FALSE(with_stage(stage, 1, 1).parameters_stay_whole()) << "there are no shards";
  }
}

TEST(ResolvedRecipe, LossParallelNeedsTensorParallel) {
  EXPECT_FALSE(Make(Degrees(2, 1, 1, 1), 2).loss_parallel());
  EXPECT_TRUE(Make(Degrees(1, 1, 2, 1), 2).loss_parallel());
  v1::Recipe off = Degrees(1, 1, 2, 1);
  off.mutable_parallelism()->set_disable_loss_parallel(true);
  EXPECT_FALSE(Make(off, 2).loss_parallel());
}

TEST(ResolvedRecipe, RefusesWithTheFieldAtFault) {
  Violation broken;
  const auto resolved = ResolvedRecipe::Create(Degrees(1, 1, 5, 1), Llama(), 5, &broken);
  EXPECT_EQ(resolved.status().code(), absl::StatusCode::kInvalidArgument);
  const auto violation = GetFieldViolation(resolved.status());
  ASSERT_TRUE(violation);
  EXPECT_EQ(violation->field(), "parallelism.tensor_parallel_degree");
  EXPECT_EQ(violation->value(), "5");
  EXPECT_EQ(broken.rule, "tp_divides_heads");
  EXPECT_EQ(broken.field, violation->field());
}

TEST(LayersOf, CoverAllLayersInOrderAndDifferByOneAtMost) {
  for (int64_t layers = 1; layers <= 20; ++layers) {
    v1::Model model = Llama();
    model.set_num_hidden_layers(layers);
    for (int64_t stages = 1; stages <= layers; ++stages) {
      const auto resolved = ResolvedRecipe::Create(Degrees(1, 1, 1, stages), model, stages);
      ASSERT_TRUE(resolved.ok()) << resolved.status();
      int64_t next = 0;
      for (int64_t stage = 0; stage < stages; ++stage) {
        const auto [first, last] = resolved->LayersOf(stage);
        EXPECT_EQ(first, next);
        EXPECT_GE(last - first, layers / stages);
        EXPECT_LE(last - first, (layers + stages - 1) / stages);
        next = last;
      }
      EXPECT_EQ(next, layers);
    }
  }
  const ResolvedRecipe three = Make(Degrees(1, 2, 1, 3), 6);
  EXPECT_EQ(three.LayersOf(0), std::make_pair(int64_t{0}, int64_t{3}));
  EXPECT_EQ(three.LayersOf(2), std::make_pair(int64_t{5}, int64_t{7}));
}

TEST(ResolvedRecipe, ResolvedAgainIsTheSame) {
  const ResolvedRecipe resolved = Make(Degrees(2, -1, 1, 1), 6);
  EXPECT_EQ(resolved.recipe().parallelism().data_parallel_shard_degree(), 3);
  EXPECT_EQ(resolved.recipe().training().global_batch_size(), 24);
  const ResolvedRecipe again = Make(resolved.recipe(), 6);
  EXPECT_EQ(again.recipe().SerializeAsString(), resolved.recipe().SerializeAsString());
  EXPECT_EQ(again.mesh(), resolved.mesh());
}

TEST(ResolvedRecipe, OfTheExampleJobOnTwoCores) {
  const auto recipe = LoadRecipe("examples/job.toml", {{"training.local_batch_size", "4"}});
  ASSERT_TRUE(recipe.ok()) << recipe.status();
  const auto model = model::ReadHfConfig("examples/tiny-llama");
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(model->name(), "tiny-llama");
  const auto resolved = ResolvedRecipe::Create(*recipe, *model, 2);
  ASSERT_TRUE(resolved.ok()) << resolved.status();
  EXPECT_EQ(resolved->mesh().dp_shard, 2);
  EXPECT_EQ(resolved->accumulation(), 2);
}

}  // namespace
}  // namespace legoai::parallel
