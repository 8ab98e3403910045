// The lower bound of the step time by which plans leave recipes out, beside simulations: of recipes all over the spaces of
// llama3-8b, 70b and 405b on H100 and of a small model on a CPU, and of these recipes as a plan varies them last. The simulations
// are lego-sim's, in this process.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <random>
#include <string>
#include <vector>

#include "core/hardware/catalog.h"
#include "core/model/catalog.h"
#include "core/recipe/recipe.h"
#include "core/recipe/resolved_recipe.h"
#include "planner/legal.h"
#include "proto/testing/assert_ok.h"
#include "proto/testing/seeded_random.h"
#include "simulator/estimate/estimate.h"

namespace legoai::integration {
namespace {

struct Job {
  std::string model, cluster;
  int64_t batch = 0, seq = 8192;
  int recipes = 12;
  std::vector<std::string> constraints = {};
};

v1::PlanRequest RequestFor(const Job& job) {
  v1::PlanRequest request;
  *request.mutable_model() = model::ResolveModel(job.model).value();
  *request.mutable_cluster() = sim::ParseCluster(job.cluster).value();
  request.set_global_batch(job.batch);
  request.set_seq_len(job.seq);
  for (const std::string& constraint : job.constraints) request.add_constraints(constraint);
  return request;
}

// The recipe itself, and what a plan would make of it last.
std::vector<v1::Recipe> Variants(const v1::PlanRequest& request, const v1::Recipe& recipe) {
  std::vector<v1::Recipe> variants(2, recipe);
  variants[1].mutable_parallelism()->set_fsdp_prefetch_depth(2);
  if (request.cluster().device().kind() == v1::CPU) {
    v1::Recipe& fused = variants.emplace_back(recipe);
    fused.mutable_compile()->set_enable(true);
    fused.mutable_compile()->set_fuse(true);
    fused.mutable_parallelism()->set_enable_async_tensor_parallel(recipe.parallelism().tensor_parallel_degree() > 1);
  } else if (recipe.training().mixed_precision_param() == v1::BFLOAT16) {
    v1::Recipe& masters = variants.emplace_back(recipe);
    masters.mutable_training()->set_dtype(v1::BFLOAT16);
    masters.mutable_optimizer()->set_master_weights(true);
  }
  const int64_t world = request.cluster().devices_per_node() * request.cluster().nodes();
  std::erase_if(variants, [&](const v1::Recipe& one) {
    return !parallel::ResolvedRecipe::Create(one, request.model(), world).ok();
  });
  return variants;
}

class StepBound : public testing::TestWithParam<Job> {};

TEST_P(StepBound, IsNeverAboveTheSimulatedStep) {
  SeededRandom random;
  const v1::PlanRequest request = RequestFor(GetParam());
  ASSERT_OK_AND_ASSIGN(const auto space, planner::PruneSpace(request));
  std::vector<double> shares;
  for (int tries = 0; tries < 200 && static_cast<int>(shares.size()) < GetParam().recipes; ++tries) {
    // Half of them are among those that a plan simulates.
    const size_t most = tries % 2 == 0 ? std::min<size_t>(64, space.survivors.size()) : space.survivors.size();
    const v1::Recipe& recipe = space.survivors[random() % most].recipe;
    ASSERT_OK_AND_ASSIGN(const double bound, planner::BoundTime(request, recipe));
    for (const v1::Recipe& variant : Variants(request, recipe)) {
      v1::SimRequest sim;
      *sim.mutable_model() = request.model();
      *sim.mutable_cluster() = request.cluster();
      *sim.mutable_recipe() = variant;
      sim.set_cost_mode(v1::COST_ROOFLINE);
      const auto estimate = sim::EstimateRecipe(sim);
      ASSERT_TRUE(estimate.ok()) << estimate.status() << "\n" << variant.DebugString();
      if (!estimate->fits()) break;
      EXPECT_LE(bound, estimate->step_time_seconds() * (1 + 1e-9)) << variant.DebugString();
      shares.push_back(bound / estimate->step_time_seconds());
    }
  }
  ASSERT_FALSE(shares.empty());
  std::sort(shares.begin(), shares.end());
  std::printf("%s on %s: bound / simulated step of %zu: %.3f to %.3f, median %.3f\n", GetParam().model.c_str(),
              GetParam().cluster.c_str(), shares.size(), shares.front(), shares.back(), shares[shares.size() / 2]);
  EXPECT_GT(shares[shares.size() / 2], 0.4) << "a bound that is no trifle";
}

INSTANTIATE_TEST_SUITE_P(Jobs, StepBound,
                         testing::Values(Job{"llama3-8b", "h100-sxm-80:8x1", 64}, Job{"llama3-8b", "h100-sxm-80:8x16", 256},
                                         Job{"llama3-70b", "h100-sxm-80:8x32", 256}, Job{"llama3-405b", "h100-sxm-80:8x64", 512},
                                         Job{"llama3-1b", "cpu:4x1", 8, 512, 8}),
                         [](const auto& info) { return "Job" + std::to_string(info.index); });

}  // namespace
}  // namespace legoai::integration
