#include "planner/legal.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/hardware/catalog.h"
#include "core/model/catalog.h"
#include "core/recipe/recipe.h"
#include "core/recipe/resolved_recipe.h"
#include "planner/plan_facts.h"
#include "planner/space.h"
#include "proto/testing/assert_ok.h"

namespace legoai::planner {
namespace {

v1::PlanRequest Request() {
  v1::PlanRequest request;
  *request.mutable_model() = model::ResolveModel("llama3-1b").value();
  request.mutable_model()->set_tie_word_embeddings(false);
  *request.mutable_cluster() = sim::ParseCluster("h100-sxm-80:8x1").value();
  request.set_global_batch(16);
  request.set_seq_len(2048);
  return request;
}

// Nodes of three: ranks 2 and 3 are neighbours on two of them.
TEST(LegalSpaceTest, TensorParallelRanksShareANode) {
  v1::PlanRequest request = Request();
  *request.mutable_cluster() = sim::ParseCluster("h100-sxm-80:3x2").value();
  request.set_global_batch(18);
  ASSERT_OK_AND_ASSIGN(const auto space, PruneSpace(request));
  EXPECT_GT(space.pruned.at("tp_inside_node"), 0);
  for (const Survivor& survivor : space.survivors) {
    EXPECT_EQ(survivor.recipe.parallelism().tensor_parallel_degree(), 1) << "the model's heads are not divided by 3";
  }
}

// A device without a peak for bfloat16 is no error of the request: those recipes are dropped by name.
TEST(LegalSpaceTest, DropsPrecisionsThatTheDeviceDoesNotName) {
  v1::PlanRequest request = Request();
  auto* peaks = request.mutable_cluster()->mutable_device()->mutable_peak_flops();
  for (int i = peaks->size(); i-- > 0;) {
    if (peaks->Get(i).dtype() == v1::BFLOAT16) peaks->DeleteSubrange(i, 1);
  }
  ASSERT_OK_AND_ASSIGN(const auto space, PruneSpace(request));
  EXPECT_EQ(2 * space.pruned.at("device_has_precision"), space.size) << "half of them";
  ASSERT_FALSE(space.survivors.empty());
  for (const Survivor& survivor : space.survivors) {
    EXPECT_EQ(survivor.recipe.training().mixed_precision_param(), v1::FLOAT32);
  }
}

TEST(LegalSpaceTest, Float32AndFloat16AreForThoseWhoAskAndFloat32ForDevicesThatAreNotFasterInBfloat16) {
  const auto precisions = [](const v1::PlanRequest& request) {
    std::set<v1::DType> found;
    const auto space = PruneSpace(request);
    for (const Survivor& survivor : space->survivors) {
      found.insert(survivor.recipe.training().mixed_precision_param());
    }
    return found;
  };
  const std::set<v1::DType> bfloat16 = {v1::BFLOAT16}, float32 = {v1::FLOAT32}, both = {v1::BFLOAT16, v1::FLOAT32};
  v1::PlanRequest request = Request();
  EXPECT_EQ(precisions(request), bfloat16);
  const auto space = PruneSpace(request);
  EXPECT_EQ(2 * space->pruned.at("float32_only_if_asked_for"), space->size);
  EXPECT_NE(space->reasons.at("float32_only_if_asked_for").find("asks for float32"), std::string::npos);

  v1::PlanRequest constrained = request;
  constrained.add_constraints("training.mixed_precision_param=float32");
  EXPECT_EQ(precisions(constrained), float32);
  v1::PlanRequest based = request;
  based.mutable_base()->mutable_training()->set_mixed_precision_param(v1::FLOAT32);
  EXPECT_EQ(precisions(based), float32);
  based.add_constraints("training.mixed_precision_param=bfloat16");  // the command line wins over the file
  EXPECT_EQ(precisions(based), bfloat16);
  const std::set<v1::DType> float16 = {v1::FLOAT16};
  based.clear_constraints();
  based.mutable_base()->mutable_training()->set_mixed_precision_param(v1::FLOAT16);
  EXPECT_EQ(precisions(based), float16);
  constrained.set_constraints(0, "training.mixed_precision_param=float16");
  EXPECT_EQ(precisions(constrained), float16);

  for (auto& peak : *request.mutable_cluster()->mutable_device()->mutable_peak_flops()) {
    if (peak.dtype() == v1::FLOAT32) peak.set_flops_per_second(1e15);
  }
  EXPECT_EQ(precisions(request), both);
}

// The first number of nodes at which something may fit, against planning on each.
TEST(LegalSpaceTest, TheSmallestClusterIsTheFirstThatHoldsSomething) {
  v1::PlanRequest request = Request();
  *request.mutable_model() = model::ResolveModel("llama3-8b").value();
  *request.mutable_cluster() = sim::ParseCluster("a100-sxm-40:2x1").value();
  request.set_global_batch(8);
  int64_t nodes = 1;
  for (;; ++nodes) {
    *request.mutable_cluster() = sim::ParseCluster("a100-sxm-40:2x" + std::to_string(nodes)).value();
    if (!PruneSpace(request)->survivors.empty()) break;
    ASSERT_LT(nodes, 64);
  }
  ASSERT_GT(nodes, 1);
  *request.mutable_cluster() = sim::ParseCluster("a100-sxm-40:2x1").value();
  ASSERT_OK_AND_ASSIGN(const auto larger, SmallestThatMayFit(request));
  EXPECT_EQ(larger.nodes, nodes);
  ASSERT_TRUE(larger.fitting);
  EXPECT_LE(larger.fitting->bound_bytes, UsableBytes(request.cluster()));
}

TEST(LegalSpaceTest, SomeJobsFitOnNoCluster) {
  v1::PlanRequest request = Request();
  request.set_global_batch(1);
  request.set_seq_len(100'000'000);
  ASSERT_OK_AND_ASSIGN(const auto larger, SmallestThatMayFit(request));
  EXPECT_FALSE(larger.fitting);
  EXPECT_GT(larger.nodes, 1);
}

// The enumeration against four nested loops over all degrees.
TEST(Space, HoldsEverySplitOfTheWorld) {
  const v1::PlanRequest request = Request();
  std::set<std::vector<int64_t>> expected, actual;
  for (int64_t r = 1; r <= 8; ++r)
    for (int64_t s = 1; s <= 8; ++s)
      for (int64_t t = 1; t <= 8; ++t)
        for (int64_t p = 1; p <= 8; ++p)
          if (r * s * t * p == 8) expected.insert({r, s, t, p});
  std::set<std::string> recipes;
  const auto candidates = Enumerate(request, 8);
  for (const Candidate& c : candidates) {
    actual.insert({c.replicate, c.shard, c.tensor, c.pipeline});
    recipes.insert(ToRecipe(c, request).SerializeAsString());
  }
  EXPECT_EQ(actual, expected);
  EXPECT_EQ(recipes.size(), candidates.size()) << "a recipe is enumerated twice";
}

TEST(Space, CutsLongSequencesAndWhereTheBaseSaysSo) {
  v1::PlanRequest request = Request();
  const auto degrees = [&] {
    std::set<int64_t> found;
    for (const Candidate& c : Enumerate(request, 8)) {
      EXPECT_EQ(c.replicate * c.shard * c.context * c.tensor * c.pipeline, 8);
      EXPECT_EQ(ToRecipe(c, request).parallelism().context_parallel_degree(), c.context);
      found.insert(c.context);
    }
    return found;
  };
  EXPECT_EQ(degrees(), (std::set<int64_t>{1}));
  request.set_seq_len(4 * 8192);
  EXPECT_EQ(degrees(), (std::set<int64_t>{1, 2, 4}));
  const auto methods = [&request] {  // of several ranks
    std::set<v1::ContextParallelRotation> found;
    for (const Survivor& survivor : PruneSpace(request)->survivors) {
      const v1::Parallelism& parallelism = survivor.recipe.parallelism();
      if (parallelism.context_parallel_degree() > 1) found.insert(parallelism.context_parallel_rotate_method());
    }
    return found;
  };
  EXPECT_EQ(methods(), std::set{v1::ROTATE_BY_RING}) << "what hides its hops, and takes less memory";
  request.add_constraints("parallelism.context_parallel_rotate_method=allgather");
  EXPECT_EQ(methods(), std::set{v1::ROTATE_BY_ALL_GATHER});
  request.clear_constraints();
  for (const auto method : {v1::ROTATE_BY_ALL_TO_ALL, v1::ROTATE_BY_ALL_GATHER}) {
    request.mutable_base()->mutable_parallelism()->set_context_parallel_rotate_method(method);
    EXPECT_EQ(methods(), std::set{method}) << "what the base names, though it be what a recipe without it does";
  }
  request.mutable_base()->mutable_parallelism()->clear_context_parallel_rotate_method();
  parallel::FillDefaults(request.mutable_base());
  EXPECT_EQ(methods(), std::set{v1::ROTATE_BY_RING}) << "whoever sends a request may have filled in defaults";
  request.mutable_base()->mutable_parallelism()->set_context_parallel_rotate_method(v1::ROTATE_BY_ALL_TO_ALL);
  request.mutable_base()->mutable_parallelism()->clear_context_parallel_rotate_method();
  request.set_seq_len(2048);
  request.add_constraints("parallelism.context_parallel_degree=4");
  EXPECT_EQ(methods(), std::set{v1::ROTATE_BY_ALL_GATHER}) << "what the base says of short parts";
  ASSERT_OK_AND_ASSIGN(const auto space, PruneSpace(request));
  ASSERT_FALSE(space.survivors.empty());
  for (const Survivor& survivor : space.survivors) EXPECT_EQ(survivor.recipe.parallelism().context_parallel_degree(), 4);
}

// Over the ranks of a node that a shard group has, where it has more.
TEST(Space, ReshardsOverTheRanksOfANodeWhereAGroupSpansSeveral) {
  v1::PlanRequest request = Request();
  const auto sizes = [&](int64_t world) {
    std::set<std::vector<int64_t>> found;  // shard, tensor, size
    for (const Candidate& c : Enumerate(request, world)) {
      if (c.reshard_size > 0 && c.pipeline == 1) found.insert({c.shard, c.tensor, c.reshard_size});
      EXPECT_TRUE(c.reshard_size == 0 || (c.pipeline == 1 && c.zero_stage == 3));
      EXPECT_EQ(ToRecipe(c, request).parallelism().fsdp_reshard_after_forward_size(), c.reshard_size);
    }
    return found;
  };
  EXPECT_TRUE(sizes(8).empty());
  *request.mutable_cluster() = sim::ParseCluster("h100-sxm-80:4x4").value();
  EXPECT_EQ(sizes(16), (std::set<std::vector<int64_t>>{{16, 1, 4}, {8, 1, 4}, {8, 2, 2}, {4, 2, 2}}));
  request.mutable_base()->mutable_parallelism()->set_fsdp_reshard_after_forward(v1::RESHARD_NEVER);
  EXPECT_TRUE(sizes(16).empty());
}

// Each key that is asked for binds, where the planner would not try it either.
TEST(Space, WhatIsAskedForBinds) {
  v1::PlanRequest request = Request();
  *request.mutable_cluster() = sim::ParseCluster("h100-sxm-80:8x1").value();
  request.add_constraints("parallelism.fsdp_reshard_after_forward_size=2");
  const auto grouped = PruneSpace(request);
  ASSERT_FALSE(grouped->survivors.empty());
  for (const Survivor& survivor : grouped->survivors)
    EXPECT_EQ(survivor.recipe.parallelism().fsdp_reshard_after_forward_size(), 2);
  request.clear_constraints();
  for (const bool again : {false, true}) {
    request.clear_constraints();
    request.add_constraints(std::string("parallelism.sequence_parallel_gather_in_backward=") + (again ? "true" : "false"));
    std::set<std::pair<int64_t, v1::ActivationCheckpointMode>> found;
    const auto space = PruneSpace(request);
    for (const Survivor& survivor : space->survivors) {
      EXPECT_EQ(survivor.recipe.parallelism().sequence_parallel_gather_in_backward(), again);
      found.insert({survivor.recipe.parallelism().tensor_parallel_degree(), survivor.recipe.activation_checkpoint().mode()});
    }
    EXPECT_TRUE(found.count({1, v1::AC_NONE}));
    EXPECT_TRUE(found.count({2, v1::AC_NONE}));
    EXPECT_TRUE(found.count({2, v1::AC_FULL}));
  }
}

// Only where it makes a difference: the space is no larger than for that.
TEST(Space, GathersInputsAgainWhereTheyAreKept) {
  const v1::PlanRequest request = Request();
  std::map<std::pair<bool, bool>, std::set<bool>> tried;  // tensor parallel, checkpointing of whole blocks
  for (const Candidate& c : Enumerate(request, 8)) {
    const bool by_block = c.checkpointing == v1::AC_FULL || (c.checkpointing == v1::AC_SELECTIVE && !c.keeps_operators);
    tried[{c.tensor > 1, by_block}].insert(c.gathers_again);
  }
  EXPECT_EQ((tried[{true, false}]), (std::set<bool>{false, true}));
  for (const auto& [tensor, by_block] : {std::pair{true, true}, {false, true}, {false, false}})
    EXPECT_EQ((tried[{tensor, by_block}]), std::set<bool>{false});
}

// What legality lets through does not depend on the planner's order: counted again by asking for each candidate.
TEST(LegalSpaceTest, PrunesWhatTheRulesSay) {
  v1::PlanRequest request = Request();
  request.set_all_rejected(true);
  ASSERT_OK_AND_ASSIGN(auto space, PruneSpace(request));
  std::map<std::string, int64_t> expected;
  for (const Candidate& candidate : Enumerate(request, 8)) {
    if (candidate.precision == v1::FLOAT32) {
      ++expected["float32_only_if_asked_for"];
      continue;
    }
    parallel::Violation broken;
    if (!parallel::ResolvedRecipe::Create(ToRecipe(candidate, request), request.model(), 8, &broken).ok())
      ++expected[broken.rule];
  }
  EXPECT_EQ(space.pruned, expected);
  for (size_t i = 1; i < space.survivors.size(); ++i) {
    EXPECT_LE(space.survivors[i - 1].roofline.step_seconds, space.survivors[i].roofline.step_seconds);
  }
  for (const auto& bounded : space.closest) EXPECT_GT(bounded.bound_bytes, UsableBytes(request.cluster()));
}

}  // namespace
}  // namespace legoai::planner
