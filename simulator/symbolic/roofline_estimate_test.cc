#include "simulator/symbolic/roofline_estimate.h"

#include <gtest/gtest.h>

#include <random>
#include <string>

#include "core/hardware/catalog.h"
#include "core/model/catalog.h"
#include "core/model/model_facts.h"
#include "core/recipe/recipe.h"

namespace legoai::sim {
namespace {

struct Job {
  v1::Model model = *model::ResolveModel("llama3-8b");
  v1::Recipe recipe = parallel::DefaultRecipe();
  std::string cluster = "h100-sxm-80:8x1";

  Job() {
    recipe.mutable_training()->set_local_batch_size(1);
    recipe.mutable_training()->set_seq_len(8192);
  }
  RooflineEstimate Estimate() const {
    auto parsed = ParseCluster(cluster);
    auto resolved = parallel::ResolvedRecipe::Create(recipe, model, parsed->devices_per_node() * parsed->nodes());
    EXPECT_TRUE(resolved.ok()) << resolved.status();
    auto estimate = EstimateStep(*resolved, *parsed);
    EXPECT_TRUE(estimate.ok()) << estimate.status();
    return *estimate;
  }
};

TEST(RooflineEstimateTest, UtilizationOfAWellKnownRecipeIsPlausible) {
  Job job;
  double flops = model::FlopsPerToken(job.model, 8192) * 8192;
  double utilization = flops / job.Estimate().step_seconds / 989.4e12;
  EXPECT_GT(utilization, 0.3);
  EXPECT_LT(utilization, 0.7);
}

TEST(RooflineEstimateTest, OrdersWhatIsKnownToDiffer) {
  Job job;
  double plain = job.Estimate().step_seconds;
  job.recipe.mutable_activation_checkpoint()->set_mode(v1::AC_FULL);
  EXPECT_GT(job.Estimate().step_seconds, 1.15 * plain);  // a third forward
  job.recipe.mutable_activation_checkpoint()->set_mode(v1::AC_NONE);
  // The same tokens per device: tensor parallelism inside a node costs, across nodes more.
  job.recipe.mutable_training()->set_local_batch_size(8);
  job.recipe.mutable_parallelism()->set_tensor_parallel_degree(8);
  double inside = job.Estimate().step_seconds;
  EXPECT_GT(inside, plain);
  job.cluster = "h100-sxm-80:4x2";
  EXPECT_GT(job.Estimate().step_seconds, inside);
}

TEST(RooflineEstimateTest, BubbleShrinksWithMicrobatches) {
  Job job;
  job.recipe.mutable_parallelism()->set_pipeline_parallel_degree(8);
  double previous = 1;
  for (int64_t batch : {8, 16, 64}) {
    job.recipe.mutable_training()->set_local_batch_size(batch);
    RooflineEstimate estimate = job.Estimate();
    double share = estimate.bubble_seconds / (estimate.step_seconds - estimate.optimizer_seconds);
    EXPECT_LT(share, previous);
    EXPECT_LT(share, 7.0 / (batch + 7) + 0.01);
    previous = share;
  }
}

// Twice as many ranks on the same cores do the same work in the same time, at best.
TEST(RooflineEstimateTest, RanksThatShareACoreTakeTurns) {
  Job job;
  job.recipe.mutable_training()->set_mixed_precision_param(v1::FLOAT32);
  job.recipe.mutable_training()->set_seq_len(128);
  auto estimate = [&](int64_t cores, int64_t stages) {
    job.recipe.mutable_training()->set_local_batch_size(4);
    job.recipe.mutable_parallelism()->set_pipeline_parallel_degree(stages);
    const auto cluster = MakeHostCluster(*FindDevice("cpu"), 4, {.memory_bytes = int64_t{1} << 40, .cores = cores});
    const auto resolved = parallel::ResolvedRecipe::Create(job.recipe, job.model, 4);
    EXPECT_TRUE(resolved.ok()) << resolved.status();
    return *EstimateStep(*resolved, *cluster);
  };
  EXPECT_NEAR(estimate(2, 1).step_seconds, 2 * estimate(4, 1).step_seconds, 1e-9);
  const RooflineEstimate own = estimate(4, 4), shared = estimate(1, 4);
  EXPECT_GT(own.bubble_seconds, 0);
  EXPECT_EQ(shared.bubble_seconds, 0);  // somebody always works
  EXPECT_GE(shared.step_seconds, own.step_seconds);
}

TEST(RooflineEstimateTest, AWorldLargerThanTheClusterIsRefused) {
  Job job;
  auto resolved = parallel::ResolvedRecipe::Create(job.recipe, job.model, 16);
  ASSERT_TRUE(resolved.ok());
  EXPECT_FALSE(EstimateStep(*resolved, *ParseCluster("h100-sxm-80:8x1")).ok());
}

// 8B parameters in bf16 are gathered twice a microbatch and reduced once in fp32; a rank passes 7/8 of that on.
TEST(RooflineEstimateTest, CountsTheBytesOfSharding) {
  Job job;
  const double parameters = static_cast<double>(model::ParameterCount(job.model));
  const RooflineEstimate estimate = job.Estimate();
  const LinkLoad& shard = estimate.loads[static_cast<size_t>(LinkUse::kShard)];
  EXPECT_EQ(shard.tier, 0);
  EXPECT_NEAR(shard.bytes / (7.0 / 8 * parameters * (2 * 2 + 4)), 1, 0.01);
  EXPECT_EQ(estimate.loads[static_cast<size_t>(LinkUse::kTensor)].tier, -1);
  EXPECT_EQ(estimate.loads[static_cast<size_t>(LinkUse::kPipeline)].tier, -1);
}

// A ring passes on as many bytes as gathers and scatters do, and attention to long parts hides them.
TEST(RooflineEstimateTest, ARingHidesWhatGathersDoNot) {
  Job job;
  job.recipe.mutable_parallelism()->set_context_parallel_degree(8);
  const auto estimate = [&job](int64_t seq, v1::ContextParallelRotation method) {
    job.recipe.mutable_training()->set_seq_len(seq);
    job.recipe.mutable_parallelism()->set_context_parallel_rotate_method(method);
    return job.Estimate();
  };
  const RooflineEstimate gathered = estimate(131072, v1::ROTATE_BY_ALL_GATHER), ring = estimate(131072, v1::ROTATE_BY_RING);
  const LinkLoad &of_gathers = gathered.loads[static_cast<size_t>(LinkUse::kContext)],
                 &of_ring = ring.loads[static_cast<size_t>(LinkUse::kContext)];
  EXPECT_NEAR(of_ring.bytes, of_gathers.bytes, 1e-9 * of_gathers.bytes);
  EXPECT_TRUE(of_ring.runs_beside_compute);
  EXPECT_FALSE(of_gathers.runs_beside_compute);
  EXPECT_LT(ring.communication_seconds, 0.25 * gathered.communication_seconds) << "the last hop of each block's gradients";
  EXPECT_GT(estimate(2048, v1::ROTATE_BY_RING).communication_seconds, 0) << "parts too short to hide a hop";
}

// Over groups of a node the gathers of backward leave the link between nodes alone, which then carries two thirds: gathers of
// forward in bfloat16 and reductions in float32.
TEST(RooflineEstimateTest, SmallerGroupsSpareTheSlowLink) {
  Job job;
  job.cluster = "h100-sxm-80:8x4";
  const auto shard = [&] { return job.Estimate().loads[static_cast<size_t>(LinkUse::kShard)]; };
  const LinkLoad all = shard();
  job.recipe.mutable_parallelism()->set_fsdp_reshard_after_forward_size(8);
  const LinkLoad nodes = shard();
  EXPECT_EQ(all.tier, 1);
  EXPECT_EQ(nodes.tier, 1);
  EXPECT_NEAR(nodes.bytes / all.bytes, (2.0 + 4) / (2 + 2 + 4), 1e-9);
  EXPECT_LT(nodes.seconds, all.seconds);
}

TEST(RooflineEstimateTest, GatheringAgainCostsWhatNothingHides) {
  Job job;
  job.recipe.mutable_parallelism()->set_tensor_parallel_degree(8);
  const RooflineEstimate plain = job.Estimate();
  job.recipe.mutable_parallelism()->set_sequence_parallel_gather_in_backward(true);
  const RooflineEstimate again = job.Estimate();
  const auto tensor = [](const RooflineEstimate& estimate) { return estimate.loads[static_cast<size_t>(LinkUse::kTensor)]; };
  EXPECT_NEAR(tensor(again).bytes / tensor(plain).bytes, 10.0 / 8, 1e-9) << "two gathers of a block beside eight collectives";
  EXPECT_GT(again.step_seconds, plain.step_seconds);
  EXPECT_LT(again.step_seconds - plain.step_seconds, tensor(again).seconds - tensor(plain).seconds);
  EXPECT_NEAR(again.compute_seconds, plain.compute_seconds, 1e-12);
}

// A sum over the ranks moves what a gather and a scatter move; attention and feed-forward side by side have one region's of two.
TEST(RooflineEstimateTest, SumsMoveWhatGathersAndScattersDo) {
  Job job;
  job.model = *model::ResolveModel("gpt2-medium");
  job.recipe.mutable_training()->set_seq_len(1024);
  job.recipe.mutable_parallelism()->set_tensor_parallel_degree(8);
  const auto tensor = [&] { return job.Estimate().loads[static_cast<size_t>(LinkUse::kTensor)].bytes; };
  const double split = tensor();
  job.recipe.mutable_parallelism()->set_sequence_parallel(false);
  EXPECT_NEAR(tensor() / split, 1, 1e-9);
  job.model.set_parallel_block(true);
  EXPECT_NEAR(tensor() / split, 0.5, 1e-9);
}

// What is waited for is the part of the step that the estimate calls communication.
TEST(RooflineEstimateTest, LoadsOfTensorAndPipelineParallelAreWaitedFor) {
  Job job;
  job.recipe.mutable_parallelism()->set_tensor_parallel_degree(2);
  job.recipe.mutable_parallelism()->set_pipeline_parallel_degree(4);
  job.recipe.mutable_training()->set_local_batch_size(8);
  const RooflineEstimate estimate = job.Estimate();
  const auto& loads = estimate.loads;
  EXPECT_NEAR(loads[static_cast<size_t>(LinkUse::kTensor)].seconds + loads[static_cast<size_t>(LinkUse::kPipeline)].seconds,
              estimate.communication_seconds, 1e-9);
  // Two directions of 8 microbatches of half the tokens' activations each.
  EXPECT_EQ(loads[static_cast<size_t>(LinkUse::kPipeline)].bytes, 8.0 * 8192 / 2 * 4096 * 2);
}

// Without latencies a ring takes what its narrowest link takes: the cost model of collectives is the oracle.
TEST(LinkLoad, TheNarrowestLinkGivesTheTimeOfTheRing) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  const auto power = [&](int most) { return int64_t{1} << std::uniform_int_distribution<>(0, most)(random); };
  for (int round = 0; round < 2000; ++round) {
    v1::Cluster cluster = *ParseCluster(round % 3 == 0 ? "mi300x:8x64" : "h100-sxm-80:8x64");  // a mesh, or a switch
    cluster.mutable_device()->set_kernel_launch_seconds(0);
    if (round % 2 == 0) {  // racks of four nodes in between
      v1::Tier* const outer = cluster.add_tiers();
      *outer = cluster.tiers(1);
      cluster.mutable_tiers(1)->set_group_size(32);
    }
    for (auto& tier : *cluster.mutable_tiers()) {
      tier.mutable_link()->set_latency_seconds(0);
      tier.mutable_link()->set_bandwidth_bytes_per_second(std::uniform_real_distribution<>(1e9, 1e12)(random));
    }
    mesh::RankLine line{0, power(6), 2 * power(2)};
    line.first = line.stride * line.size * std::uniform_int_distribution<int64_t>(0, 512 / line.stride / line.size - 1)(random);
    const double bytes = 1e12, passed = bytes * static_cast<double>(line.size - 1) / static_cast<double>(line.size);
    const LinkLoad load = NarrowestLink(cluster, line, passed);
    ASSERT_GE(load.tier, 0);
    const double seconds = load.bytes / load.bytes_per_second;
    const auto expected = CollectiveCostModel(cluster).Time(Effect::kAllGather, static_cast<int64_t>(bytes), line);
    ASSERT_TRUE(expected.ok()) << expected.status();
    EXPECT_NEAR(seconds / *expected, 1, 1e-9) << line.first << " + " << line.stride << " * " << line.size;
  }
}

TEST(LinkLoad, ALoneRankSendsNothing) { EXPECT_EQ(NarrowestLink(*ParseCluster("h100-sxm-80:8x2"), {0, 1, 1}, 1e9).tier, -1); }

// Eight ranks of a node share its way out: an eighth of the ring's bytes goes through each adapter.
TEST(LinkLoad, ANodesRanksShareItsWayOut) {
  v1::Cluster cluster = *ParseCluster("h100-sxm-80:8x2");
  cluster.mutable_tiers(1)->mutable_link()->set_bandwidth_bytes_per_second(1e9);
  const LinkLoad all = NarrowestLink(cluster, {0, 1, 16}, 8e9), across = NarrowestLink(cluster, {0, 8, 2}, 8e9);
  EXPECT_EQ(all.tier, 1);
  EXPECT_EQ(all.bytes, 1e9);
  EXPECT_EQ(across.tier, 1);
  EXPECT_EQ(across.bytes, 8e9);
}

}  // namespace
}  // namespace legoai::sim
