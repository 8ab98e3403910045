// Planned buckets against all there are: for small models every way to cut the list of modules into buckets is simulated.
#include "simulator/estimate/bucket_search.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "core/hardware/catalog.h"
#include "core/model/catalog.h"
#include "core/recipe/fsdp_buckets.h"
#include "core/recipe/recipe.h"
#include "proto/testing/assert_ok.h"
#include "simulator/estimate/estimate.h"

namespace legoai::sim {
namespace {

struct SmallCase {
  std::string name, cluster;
  int64_t layers = 1, seq_len = 8192;
  v1::ActivationCheckpointMode checkpointing = v1::AC_NONE;
  bool tight = false;  // half of all buckets do not fit
};

// Layers as wide as Llama 3 8B's under a vocabulary that does not rule the step.
v1::Model Model(int64_t layers) {
  v1::Model model = model::ResolveModel("llama3-8b").value();
  model.set_num_hidden_layers(layers);
  model.set_vocab_size(8192);
  return model;
}

v1::Recipe RecipeOf(const SmallCase& small) {
  v1::Recipe recipe = parallel::DefaultRecipe();
  recipe.mutable_training()->set_local_batch_size(1);
  recipe.mutable_training()->set_seq_len(small.seq_len);
  recipe.mutable_activation_checkpoint()->set_mode(small.checkpointing);
  recipe.mutable_compile()->set_enable(true);
  recipe.mutable_compile()->set_fsdp_bucketing(v1::BUCKET_BY_PLAN);
  return recipe;
}

// All ways to cut `modules` into consecutive buckets.
std::vector<planner::WrapBuckets> AllBuckets(const std::vector<std::string>& modules) {
  std::vector<planner::WrapBuckets> all;
  for (uint32_t cuts = 0; cuts < 1u << (modules.size() - 1); ++cuts) {
    planner::WrapBuckets& buckets = all.emplace_back();
    for (size_t i = 0; i < modules.size(); ++i) {
      if (i == 0 || (cuts >> (i - 1) & 1) != 0) buckets.emplace_back();
      buckets.back().push_back(modules[i]);
    }
  }
  return all;
}

class BucketSearchTest : public testing::TestWithParam<SmallCase> {};

TEST_P(BucketSearchTest, IsWithinFivePercentOfTheBestOfAllBuckets) {
  const SmallCase& small = GetParam();
  v1::Cluster cluster = ParseCluster(small.cluster).value();
  const int64_t world = cluster.devices_per_node() * cluster.nodes();
  ASSERT_OK_AND_ASSIGN(const auto resolved, parallel::ResolvedRecipe::Create(RecipeOf(small), Model(small.layers), world));
  ASSERT_OK_AND_ASSIGN(auto search, BucketSearch::Create(resolved, cluster, MemoryOptionsOf(cluster.device())));
  std::vector<std::string> modules;
  for (const planner::WrapModule& module : search.stages().at(0).forward.modules) modules.push_back(module.name);
  ASSERT_EQ(static_cast<int64_t>(modules.size()), 3 + 9 * small.layers);
  std::vector<BucketSearch::Outcome> all;
  std::vector<int64_t> peaks;
  for (const planner::WrapBuckets& buckets : AllBuckets(modules)) {
    ASSERT_OK_AND_ASSIGN(all.emplace_back(), search.Evaluate(buckets));
    peaks.push_back(all.back().peak_bytes);
  }
  std::sort(peaks.begin(), peaks.end());
  const int64_t usable = small.tight ? peaks[peaks.size() / 2] : cluster.device().memory_bytes();
  cluster.mutable_device()->set_memory_bytes(usable + cluster.device().reserve_bytes());
  ASSERT_OK_AND_ASSIGN(search, BucketSearch::Create(resolved, cluster, MemoryOptionsOf(cluster.device())));
  BucketSearch::Outcome best;
  int64_t fit = 0;
  for (const BucketSearch::Outcome& outcome : all) {
    if (outcome.peak_bytes > usable) continue;
    if (fit++ == 0 || outcome.step_seconds < best.step_seconds) best = outcome;
  }
  ASSERT_OK_AND_ASSIGN(const auto planned, search.Best());
  ASSERT_OK_AND_ASSIGN(const auto outcome, search.Evaluate(planned.forward, planned.backward));
  ASSERT_OK_AND_ASSIGN(const auto alone, search.Evaluate({}));
  planner::WrapPass forward = search.stages()[0].forward;
  ASSERT_OK_AND_ASSIGN(const auto greedy, search.Evaluate(planner::WrapGreedily(forward, {usable})));
  std::printf("%-28s %5lld fit; ms a step (exposed): best %.3f (%.3f), planned %.3f (%.3f), algorithm 1 of the forward %.3f "
              "(%.3f), alone %.3f (%.3f)\n",
              small.name.c_str(), static_cast<long long>(fit), best.step_seconds * 1e3, best.exposed_seconds * 1e3,
              outcome.step_seconds * 1e3, outcome.exposed_seconds * 1e3, greedy.step_seconds * 1e3, greedy.exposed_seconds * 1e3,
              alone.step_seconds * 1e3, alone.exposed_seconds * 1e3);
  EXPECT_TRUE(outcome.fits);
  EXPECT_LE(outcome.step_seconds, 1.05 * best.step_seconds);
}

INSTANTIATE_TEST_SUITE_P(
    Cases, BucketSearchTest,
    testing::Values(SmallCase{"node", "h100-sxm-80:8x1"}, SmallCase{"node_checkpointed", "h100-sxm-80:8x1", 1, 8192, v1::AC_FULL},
                    SmallCase{"node_tight", "h100-sxm-80:8x1", 1, 2048, v1::AC_FULL, true},
                    SmallCase{"node_short_sequence", "h100-sxm-80:8x1", 1, 2048},
                    SmallCase{"eight_nodes", "h100-sxm-80:8x8"},
                    SmallCase{"eight_nodes_short_sequence", "h100-sxm-80:8x8", 1, 1024},
                    SmallCase{"a100_nodes", "a100-sxm-80:8x4", 1, 4096},
                    SmallCase{"cpus", "cpu:4x1", 1, 64}),
    [](const auto& info) { return info.param.name; });

// Of one half, with the plan's buckets in the other: the two meet in the middle of the step alone.
class HalvesTest : public testing::TestWithParam<SmallCase> {};

TEST_P(HalvesTest, AreEachWithinFivePercentOfTheirBest) {
  const SmallCase& small = GetParam();
  const v1::Cluster cluster = ParseCluster(small.cluster).value();
  const int64_t world = cluster.devices_per_node() * cluster.nodes();
  ASSERT_OK_AND_ASSIGN(const auto resolved, parallel::ResolvedRecipe::Create(RecipeOf(small), Model(small.layers), world));
  ASSERT_OK_AND_ASSIGN(const auto search, BucketSearch::Create(resolved, cluster, MemoryOptionsOf(cluster.device())));
  ASSERT_OK_AND_ASSIGN(const planner::WrapPlan plan, search.Best());
  ASSERT_OK_AND_ASSIGN(const auto planned, search.Evaluate(plan.forward, plan.backward));
  const planner::WrapBuckets backward = plan.backward.empty() ? plan.forward : plan.backward;
  ASSERT_OK_AND_ASSIGN(const auto again, search.Evaluate(plan.forward, backward));
  EXPECT_EQ(planned.step_seconds, again.step_seconds);
  EXPECT_EQ(planned.peak_bytes, again.peak_bytes);
  std::vector<std::string> modules;
  for (const planner::WrapModule& module : search.stages().at(0).forward.modules) modules.push_back(module.name);
  double best_forward = planned.step_seconds, best_backward = planned.step_seconds;
  for (const planner::WrapBuckets& buckets : AllBuckets(modules)) {
    ASSERT_OK_AND_ASSIGN(const auto ahead, search.Evaluate(buckets, backward));
    ASSERT_OK_AND_ASSIGN(const auto back, search.Evaluate(plan.forward, buckets));
    if (ahead.fits) best_forward = std::min(best_forward, ahead.step_seconds);
    if (back.fits) best_backward = std::min(best_backward, back.step_seconds);
  }
  std::printf("%-28s %s; ms a step: planned %.3f, with the best forward %.3f, with the best backward %.3f\n", small.name.c_str(),
              plan.backward.empty() ? "alike" : "apart", planned.step_seconds * 1e3, best_forward * 1e3, best_backward * 1e3);
  EXPECT_LE(planned.step_seconds, 1.05 * best_forward);
  EXPECT_LE(planned.step_seconds, 1.05 * best_backward);
}

INSTANTIATE_TEST_SUITE_P(Cases, HalvesTest,
                         testing::Values(SmallCase{"node_short_sequence", "h100-sxm-80:8x1", 1, 2048},
                                         SmallCase{"eight_nodes", "h100-sxm-80:8x8"}, SmallCase{"cpus", "cpu:4x1", 1, 64}),
                         [](const auto& info) { return info.param.name; });

v1::SimRequest RequestOf(const std::string& cluster, const v1::Recipe& recipe, const v1::Model& model) {
  v1::SimRequest request;
  *request.mutable_model() = model;
  *request.mutable_cluster() = ParseCluster(cluster).value();
  *request.mutable_recipe() = recipe;
  request.set_cost_mode(v1::COST_ROOFLINE);
  return request;
}

TEST(PlannedBuckets, AreInTheEstimatesRecipeAndSimulateAsIt) {
  const v1::SimRequest request = RequestOf("h100-sxm-80:8x1", RecipeOf({}), Model(4));
  ASSERT_OK_AND_ASSIGN(const auto planned, EstimateRecipe(request));
  EXPECT_EQ(planned.recipe().compile().fsdp_bucketing(), v1::BUCKET_BY_MODULES);
  EXPECT_GT(planned.recipe().compile().fsdp_buckets_size(), 1);
  v1::SimRequest again = request;
  *again.mutable_recipe() = planned.recipe();
  ASSERT_OK_AND_ASSIGN(const auto listed, EstimateRecipe(again));
  EXPECT_EQ(listed.step_time_seconds(), planned.step_time_seconds());
  EXPECT_EQ(listed.stages(0).peak_allocated_bytes(), planned.stages(0).peak_allocated_bytes());
  for (const v1::FsdpBucketing other : {v1::BUCKET_NOTHING, v1::BUCKET_BY_MODULES}) {
    again.mutable_recipe()->mutable_compile()->set_fsdp_bucketing(other);
    again.mutable_recipe()->mutable_compile()->clear_fsdp_buckets();
    again.mutable_recipe()->mutable_compile()->clear_fsdp_backward_buckets();
    if (other == v1::BUCKET_BY_MODULES) again.mutable_recipe()->mutable_compile()->add_fsdp_buckets()->add_modules("layers.*");
    ASSERT_OK_AND_ASSIGN(const auto by_hand, EstimateRecipe(again));
    EXPECT_LE(planned.step_time_seconds(), 1.01 * by_hand.step_time_seconds()) << other;
  }
}

TEST(PlannedBuckets, AreNoneWhereNothingIsGathered) {
  ASSERT_OK_AND_ASSIGN(const auto estimate, EstimateRecipe(RequestOf("h100-sxm-80:1x1", RecipeOf({}), Model(1))));
  EXPECT_EQ(estimate.recipe().compile().fsdp_bucketing(), v1::BUCKET_NOTHING);
}

// Where parameters stay whole, of gradients and of the gathers after the update; with replicas of the shards too.
TEST(PlannedBuckets, AreFasterThanCollectivesOfEachParameterInEveryLayoutOfShards) {
  for (const int64_t stage : {1, 2, 3}) {
    for (const int64_t replicas : {1, 2}) {
      SCOPED_TRACE(testing::Message() << "ZeRO-" << stage << ", " << replicas << " replicas");
      v1::SimRequest request = RequestOf("h100-sxm-80:8x1", RecipeOf({}), Model(4));
      request.mutable_recipe()->mutable_parallelism()->set_zero_stage(stage);
      request.mutable_recipe()->mutable_parallelism()->set_data_parallel_replicate_degree(replicas);
      ASSERT_OK_AND_ASSIGN(const auto planned, EstimateRecipe(request));
      EXPECT_EQ(planned.recipe().compile().fsdp_bucketing(), v1::BUCKET_BY_MODULES);
      EXPECT_GT(planned.recipe().compile().fsdp_buckets_size(), 1);
      request.mutable_recipe()->mutable_compile()->set_fsdp_bucketing(v1::BUCKET_NOTHING);
      ASSERT_OK_AND_ASSIGN(const auto alone, EstimateRecipe(request));
      EXPECT_LE(planned.step_time_seconds(), 1.01 * alone.step_time_seconds());
      request.mutable_recipe()->mutable_compile()->set_fsdp_bucketing(v1::BUCKET_BY_BLOCK);
      ASSERT_OK_AND_ASSIGN(const auto by_block, EstimateRecipe(request));
      std::printf("ZeRO-%d, %d replicas: ms a step (exposed): planned %.2f (%.2f), alone %.2f (%.2f), by block %.2f (%.2f)\n",
                  static_cast<int>(stage), static_cast<int>(replicas), planned.step_time_seconds() * 1e3,
                  planned.breakdown().exposed_communication_seconds() * 1e3, alone.step_time_seconds() * 1e3,
                  alone.breakdown().exposed_communication_seconds() * 1e3, by_block.step_time_seconds() * 1e3,
                  by_block.breakdown().exposed_communication_seconds() * 1e3);
    }
  }
}

// Each stage has its own modules: the plan has all of them, and no stage is worse than with collectives of each parameter.
TEST(PlannedBuckets, AreThoseOfAllStages) {
  v1::SimRequest request = RequestOf("h100-sxm-80:8x1", RecipeOf({}), Model(4));
  request.mutable_recipe()->mutable_training()->set_local_batch_size(4);
  request.mutable_recipe()->mutable_parallelism()->set_pipeline_parallel_degree(2);
  ASSERT_OK_AND_ASSIGN(const auto planned, EstimateRecipe(request));
  const auto buckets = parallel::FsdpBuckets(planned.recipe(), 4);
  for (const char* parameter : {"model.embed_tokens.weight", "model.layers.0.mlp.up_proj.weight",
                                "model.layers.3.mlp.up_proj.weight", "model.norm.weight", "lm_head.weight"}) {
    EXPECT_GE(parallel::BucketOf(buckets, parameter), 0) << parameter;
  }
  request.mutable_recipe()->mutable_compile()->set_fsdp_bucketing(v1::BUCKET_NOTHING);
  ASSERT_OK_AND_ASSIGN(const auto alone, EstimateRecipe(request));
  EXPECT_LE(planned.step_time_seconds(), 1.01 * alone.step_time_seconds());
}

// A device with little room: the plan with the most buckets' worth of memory would not fit.
TEST(PlannedBuckets, StayWithinMemory) {
  v1::SimRequest request = RequestOf("h100-sxm-80:8x1", RecipeOf({}), Model(8));
  ASSERT_OK_AND_ASSIGN(const auto roomy, EstimateRecipe(request));
  request.mutable_recipe()->mutable_compile()->set_fsdp_bucketing(v1::BUCKET_NOTHING);
  ASSERT_OK_AND_ASSIGN(const auto alone, EstimateRecipe(request));
  const int64_t least = alone.stages(0).peak_allocated_bytes(), reserve = alone.stages(0).reserve_bytes();
  ASSERT_LT(least, roomy.stages(0).peak_allocated_bytes());
  request.mutable_recipe()->mutable_compile()->set_fsdp_bucketing(v1::BUCKET_BY_PLAN);
  request.mutable_cluster()->mutable_device()->set_memory_bytes(least + reserve);
  ASSERT_OK_AND_ASSIGN(const auto tight, EstimateRecipe(request));
  EXPECT_TRUE(tight.fits());
}

}  // namespace
}  // namespace legoai::sim
