#include "core/recipe/parallel_dims.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "core/model/hf_config.h"
#include "core/recipe/recipe.h"
#include "proto/errors.h"
#include "worker/parallel/testing/small_job.h"

namespace legoai::parallel {
namespace {

using testing::Degrees;

v1::Model Llama() {
  v1::Model model = testing::SmallLlama();
  model.set_num_hidden_layers(7);
  return model;
}

ParallelDims Make(const v1::Recipe& recipe, int64_t world_size) {
  auto dims = ParallelDims::Create(recipe, Llama(), world_size);
  EXPECT_TRUE(dims.ok()) << dims.status();
  return *dims;
}

TEST(ParallelDims, DerivesShardDegreeAndGlobalBatch) {
  const ParallelDims dims = Make(Degrees(2, -1, 2, 2), 24);
  EXPECT_EQ(dims.shard(), 3);
  EXPECT_EQ(dims.dp(), 6);
  EXPECT_EQ(dims.global_batch(), 24);
  EXPECT_EQ(dims.accumulation(), 1);
  EXPECT_EQ(dims.microbatch_size(), 1);
  EXPECT_EQ(dims.microbatches(), 4);
}

TEST(ParallelDims, AccumulatesWithoutPipelineInLocalBatches) {
  v1::Recipe recipe = Degrees(1, 2, 1, 1);
  recipe.mutable_training()->set_global_batch_size(24);
  recipe.mutable_parallelism()->set_pipeline_parallel_microbatch_size(2);
  const ParallelDims dims = Make(recipe, 2);
  EXPECT_EQ(dims.accumulation(), 3);
  EXPECT_EQ(dims.microbatches(), 3);
  EXPECT_EQ(dims.microbatch_size(), 4);
}

TEST(ParallelDims, PipelinesAllLocalBatchesInMicrobatches) {
  v1::Recipe recipe = Degrees(1, 2, 1, 2);
  recipe.mutable_training()->set_global_batch_size(24);
  recipe.mutable_parallelism()->set_pipeline_parallel_microbatch_size(2);
  const ParallelDims dims = Make(recipe, 4);
  EXPECT_EQ(dims.accumulation(), 3);
  EXPECT_EQ(dims.microbatches(), 6);
}

TEST(ParallelDims, UsesDefaultsForWhatIsUnset) {
  v1::Recipe recipe;
  const ParallelDims dims = Make(recipe, 3);
  EXPECT_EQ(dims.shard(), 3);
  EXPECT_EQ(dims.global_batch(), 24);
  EXPECT_EQ(dims.seq_len(), 2048);
}

TEST(ParallelDims, ReshardsByPolicy) {
  EXPECT_TRUE(Make(Degrees(1, 2, 1, 1), 2).reshard_after_forward());
  EXPECT_FALSE(Make(Degrees(1, 2, 1, 2), 4).reshard_after_forward());
  v1::Recipe never = Degrees(1, 2, 1, 1);
  never.mutable_parallelism()->set_fsdp_reshard_after_forward(v1::RESHARD_NEVER);
  EXPECT_FALSE(Make(never, 2).reshard_after_forward());
}

TEST(ParallelDims, LossParallelNeedsTensorParallel) {
  EXPECT_FALSE(Make(Degrees(2, 1, 1, 1), 2).loss_parallel());
  EXPECT_TRUE(Make(Degrees(1, 1, 2, 1), 2).loss_parallel());
  v1::Recipe off = Degrees(1, 1, 2, 1);
  off.mutable_parallelism()->set_disable_loss_parallel(true);
  EXPECT_FALSE(Make(off, 2).loss_parallel());
}

TEST(ParallelDims, RefusesWithTheFieldAtFault) {
  const auto dims = ParallelDims::Create(Degrees(1, 1, 5, 1), Llama(), 5);
  EXPECT_EQ(dims.status().code(), absl::StatusCode::kInvalidArgument);
  const auto violation = GetFieldViolation(dims.status());
  ASSERT_TRUE(violation);
  EXPECT_EQ(violation->field(), "parallelism.tensor_parallel_degree");
  EXPECT_EQ(violation->value(), "5");
}

TEST(Groups, OfOneRankOfAMesh) {
  const ParallelDims dims = Make(Degrees(2, 2, 2, 2), 16);
  EXPECT_EQ(dims.CoordinatesOf(13), (Coordinates{1, 1, 0, 1}));
  const auto groups = dims.Groups(13);
  const std::vector<std::pair<std::string, std::vector<int64_t>>> expected = {
      {"world", {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}},
      {"pp", {5, 13}},
      {"dp_replicate", {9, 13}},
      {"dp_shard", {13, 15}},
      {"tp", {12, 13}},
      {"dp", {9, 11, 13, 15}}};
  ASSERT_EQ(groups.size(), expected.size());
  for (size_t i = 0; i < groups.size(); ++i) {
    EXPECT_EQ(groups[i].name, expected[i].first);
    EXPECT_EQ(groups[i].ranks, expected[i].second) << groups[i].name;
  }
}

// For every mesh of up to 24 ranks: each group holds its rank once, ranks ascend, all members agree about the group, and groups
// of different dimensions that meet in a rank share nothing else.
TEST(Groups, PartitionTheRanksInEveryDimension) {
  for (const int64_t r : {1, 2, 3}) {
    for (const int64_t s : {1, 2, 4}) {
      for (const int64_t tp : {1, 2}) {
        for (const int64_t pp : {1, 3}) {
          const int64_t world = r * s * tp * pp;
          const ParallelDims dims = Make(Degrees(r, s, tp, pp), world);
          std::map<std::string, std::set<std::vector<int64_t>>> parts;
          for (int64_t rank = 0; rank < world; ++rank) {
            EXPECT_EQ(dims.RankOf(dims.CoordinatesOf(rank)), rank);
            for (const graph::Group& group : dims.Groups(rank)) {
              EXPECT_TRUE(std::is_sorted(group.ranks.begin(), group.ranks.end()));
              EXPECT_EQ(std::count(group.ranks.begin(), group.ranks.end(), rank), 1);
              parts[group.name].insert(group.ranks);
            }
          }
          const std::map<std::string, int64_t> sizes = {{"world", world}, {"pp", pp}, {"dp_replicate", r},
                                                        {"dp_shard", s},  {"tp", tp}, {"dp", r * s}};
          for (const auto& [name, size] : sizes) {
            EXPECT_EQ(parts[name].size(), world / size) << name;
            for (const auto& ranks : parts[name]) EXPECT_EQ(ranks.size(), size) << name;
          }
          for (int64_t rank = 0; rank < world; ++rank) {
            const auto dp = dims.Groups(rank)[5].ranks;
            EXPECT_EQ(dp[dims.DataParallelRank(rank)], rank);
          }
        }
      }
    }
  }
}

TEST(StageLayers, CoverAllLayersInOrderAndDifferByOneAtMost) {
  for (int64_t layers = 1; layers <= 20; ++layers) {
    for (int64_t stages = 1; stages <= layers; ++stages) {
      int64_t next = 0;
      for (int64_t stage = 0; stage < stages; ++stage) {
        const auto [first, last] = StageLayers(layers, stages, stage);
        EXPECT_EQ(first, next);
        EXPECT_GE(last - first, layers / stages);
        EXPECT_LE(last - first, (layers + stages - 1) / stages);
        next = last;
      }
      EXPECT_EQ(next, layers);
    }
  }
  EXPECT_EQ(StageLayers(7, 3, 0), std::make_pair(int64_t{0}, int64_t{3}));
  EXPECT_EQ(StageLayers(7, 3, 2), std::make_pair(int64_t{5}, int64_t{7}));
}

TEST(ParallelDims, LayersOfARankAreThoseOfItsStage) {
  const ParallelDims dims = Make(Degrees(1, 2, 1, 3), 6);
  EXPECT_EQ(dims.LayersOf(1), StageLayers(7, 3, 0));
  EXPECT_EQ(dims.LayersOf(2), StageLayers(7, 3, 1));
  EXPECT_EQ(dims.LayersOf(5), StageLayers(7, 3, 2));
}

TEST(ParallelDims, ResolveGivesTheSameDimsAgain) {
  const v1::Recipe recipe = Degrees(2, -1, 1, 1);
  const ParallelDims dims = Make(recipe, 6);
  const v1::Recipe resolved = dims.Resolve(recipe);
  EXPECT_EQ(resolved.parallelism().data_parallel_shard_degree(), 3);
  EXPECT_EQ(resolved.training().global_batch_size(), 24);
  EXPECT_EQ(Make(resolved, 6).global_batch(), dims.global_batch());
}

TEST(ParallelDims, OfTheExampleJobOnTwoCores) {
  const auto recipe = LoadRecipe("examples/job.toml", {{"training.local_batch_size", "4"}});
  ASSERT_TRUE(recipe.ok()) << recipe.status();
  const auto model = model::ReadHfConfig("examples/tiny-llama");
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(model->name(), "tiny-llama");
  const auto dims = ParallelDims::Create(*recipe, *model, 2);
  ASSERT_TRUE(dims.ok()) << dims.status();
  EXPECT_EQ(dims->shard(), 2);
  EXPECT_EQ(dims->accumulation(), 2);
}

}  // namespace
}  // namespace legoai::parallel
