// Graph mode, asynchronous tensor parallel, planned buckets and fused operators, tried on the best recipes of a plan for CPUs.
#include "planner/last_choices.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "core/recipe/recipe.h"
#include "planner/explain.h"
#include "planner/plan.h"
#include "planner/testing/arithmetic_estimator.h"
#include "proto/testing/assert_ok.h"

namespace legoai::planner {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using testing::Request;

constexpr int64_t kMiB = int64_t{1} << 20;

// Seconds that each choice saves, of a step of ten and one more for each rank of tensor parallel; MiB that buckets take.
struct Gains {
  double graph = 3, async = 1, buckets = 2, masters = 0.3, fused = 0.5;
  int64_t buckets_mib = 56;
  int64_t capacity_mib = 1000;
  bool async_fails = false;
};

class GainsEstimator : public Estimator {
 public:
  explicit GainsEstimator(const Gains& gains) : gains_(gains) {}
  int64_t Slots() const override { return 2; }
  absl::Status Start(const v1::SimRequest& request) override {
    started_.push_back(request);
    recipes.push_back(request.recipe());
    return absl::OkStatus();
  }
  absl::StatusOr<std::optional<v1::SimResponse>> Wait(absl::Duration) override {
    if (started_.empty()) return std::optional<v1::SimResponse>();
    v1::SimResponse response;
    response.set_id(started_.front().id());
    const v1::Recipe recipe = started_.front().recipe();
    started_.pop_front();
    const bool is_async = recipe.parallelism().enable_async_tensor_parallel();
    if (is_async && gains_.async_fails) {
      response.mutable_error()->set_message("no such operator");
      return std::optional<v1::SimResponse>(response);
    }
    const bool planned = recipe.compile().fsdp_bucketing() == v1::BUCKET_BY_PLAN;
    const int64_t tp = recipe.parallelism().tensor_parallel_degree(), mib = 100 + (planned ? gains_.buckets_mib : 0);
    double seconds = 10 + static_cast<double>(tp);
    if (recipe.compile().enable()) seconds -= gains_.graph;
    if (is_async) seconds -= gains_.async;
    if (recipe.optimizer().master_weights()) seconds -= gains_.masters;
    if (planned) seconds -= gains_.buckets;
    if (recipe.compile().fuse()) seconds -= gains_.fused;
    v1::Estimate* const estimate = response.mutable_estimate();
    *estimate->mutable_recipe() = recipe;
    if (planned) {
      estimate->mutable_recipe()->mutable_compile()->set_fsdp_bucketing(v1::BUCKET_BY_MODULES);
      estimate->mutable_recipe()->mutable_compile()->add_fsdp_buckets()->add_modules("layers.*");
    }
    estimate->set_step_time_seconds(seconds);
    estimate->set_fits(mib <= gains_.capacity_mib);
    estimate->mutable_breakdown()->set_compute_seconds(seconds);
    v1::StageEstimate* const stage = estimate->add_stages();
    stage->set_capacity_bytes(gains_.capacity_mib * kMiB);
    stage->set_peak_allocated_bytes(mib * kMiB);
    return std::optional<v1::SimResponse>(response);
  }
  void StopAll() override { started_.clear(); }

  template <class Which>
  int64_t Count(Which which) const {
    return std::count_if(recipes.begin(), recipes.end(), which);
  }
  std::vector<v1::Recipe> recipes;  // that were simulated

 private:
  const Gains gains_;
  std::deque<v1::SimRequest> started_;
};

bool IsProgram(const v1::Recipe& recipe) { return recipe.compile().enable(); }
bool IsFused(const v1::Recipe& recipe) { return recipe.compile().fuse(); }
bool IsAsync(const v1::Recipe& recipe) { return recipe.parallelism().enable_async_tensor_parallel(); }
bool IsPlanned(const v1::Recipe& recipe) { return recipe.compile().fsdp_bucketing() == v1::BUCKET_BY_PLAN; }

v1::PlanRequest OnCpus() {
  v1::PlanRequest request = Request();
  *request.mutable_cluster() = sim::ParseCluster("cpu:8x1").value();
  request.mutable_cluster()->mutable_device()->set_memory_bytes(int64_t{80} << 30);
  request.mutable_cluster()->mutable_device()->set_reserve_bytes(0);
  request.set_top(1000);
  request.set_budget_seconds(60);
  return request;
}

// Of two ranks of tensor parallel and shards over four, so that all may be made.
v1::PlanRequest OfTensorParallel() {
  v1::PlanRequest request = OnCpus();
  request.add_constraints("parallelism.tensor_parallel_degree=2");
  request.add_constraints("parallelism.pipeline_parallel_degree=1");
  request.add_constraints("parallelism.data_parallel_replicate_degree=1");
  return request;
}

TEST(LastChoices, WhatGainsIsRankedAndSaysWhatItBought) {
  GainsEstimator estimator({});
  ASSERT_OK_AND_ASSIGN(const auto result, Plan(OfTensorParallel(), estimator));
  const v1::Recipe& best = result.ranked(0).recipe();
  EXPECT_TRUE(IsProgram(best));
  EXPECT_TRUE(IsAsync(best));
  EXPECT_EQ(best.compile().fsdp_bucketing(), v1::BUCKET_BY_MODULES);
  EXPECT_THAT(result.ranked(0).recipe_toml(), HasSubstr("fsdp_buckets"));
  EXPECT_TRUE(IsFused(best));
  EXPECT_TRUE(best.compile().fall_back_to_eager()) << "where there is no compiler";
  EXPECT_DOUBLE_EQ(result.ranked(0).step_time_seconds(), 5.5);
  EXPECT_THAT(result.explanation(),
              HasSubstr("\n- Tried last: graph mode (compile.enable): saves 3.000 s of 12.00 s a step and takes as much memory; "
                        "asynchronous tensor parallel (parallelism.enable_async_tensor_parallel): saves 1.000 s of 9.000 s a "
                        "step and takes as much memory; planned buckets (compile.fsdp_bucketing): saves 2.000 s of 8.000 s a "
                        "step and takes 56.0 MiB more memory; fused operators (compile.fuse): saves 500 ms of 6.000 s a step and "
                        "takes as much memory. A program spares the host 3 us an operator ("));
  EXPECT_THAT(Summarize(best), HasSubstr("asynchronous"));
  EXPECT_THAT(Summarize(best), HasSubstr("graph mode with fused operators, collectives in buckets of modules"));
  EXPECT_EQ(estimator.Count(IsProgram), 16) << "four recipes each";
  // Those that it was made of are ranked too.
  std::vector<double> seconds;
  for (const auto& ranked : result.ranked()) seconds.push_back(ranked.step_time_seconds());
  for (const double one : {5.5, 6.0, 8.0, 9.0, 12.0}) EXPECT_THAT(seconds, ::testing::Contains(one));
  int64_t pruned = 0;
  for (const auto& [rule, count] : result.pruned()) pruned += count;
  EXPECT_EQ(result.space(), pruned + result.bounded_out() + result.captured() + result.failed() + result.not_reached());
}

TEST(LastChoices, WhatGainsLessThanPredictionsAreSureOfIsNotRanked) {
  GainsEstimator estimator({.graph = 0.05, .async = -1, .buckets = 0, .fused = -1, .buckets_mib = -8});
  ASSERT_OK_AND_ASSIGN(const auto result, Plan(OfTensorParallel(), estimator));
  for (const auto& ranked : result.ranked()) {
    EXPECT_FALSE(IsProgram(ranked.recipe()));
    if (!ranked.estimated()) {
      EXPECT_DOUBLE_EQ(ranked.step_time_seconds(), 12);
    }
  }
  EXPECT_THAT(result.explanation(),
              HasSubstr("graph mode (compile.enable): saves 50.0 ms of 12.00 s a step and takes as much memory, and is left out; "
                        "asynchronous tensor parallel (parallelism.enable_async_tensor_parallel): costs 1.000 s of 11.95 s a "
                        "step and takes as much memory, and is left out; planned buckets (compile.fsdp_bucketing): changes no "
                        "time, takes 8.00 MiB less memory and is left out; fused operators (compile.fuse): costs 1.000 s of "
                        "11.95 s a step and takes"));
  EXPECT_EQ(estimator.Count([](const auto& recipe) { return IsAsync(recipe) && IsPlanned(recipe); }), 0) << "from what is slower";
}

TEST(LastChoices, AFailureAndWhatDoesNotFitAreSaid) {
  GainsEstimator estimator({.buckets_mib = 2000, .async_fails = true});
  EXPECT_GT(2000, Gains().capacity_mib);
  ASSERT_OK_AND_ASSIGN(const auto result, Plan(OfTensorParallel(), estimator));
  EXPECT_DOUBLE_EQ(result.ranked(0).step_time_seconds(), 8.5);
  EXPECT_EQ(result.failed(), 4);
  EXPECT_THAT(result.explanation(), HasSubstr("(parallelism.enable_async_tensor_parallel): was not simulated to its end"));
  EXPECT_THAT(result.explanation(), HasSubstr("planned buckets (compile.fsdp_bucketing): does not fit: it takes 1.95 GiB more"));
}

TEST(LastChoices, ConstraintsAndBasesThatNameAKeyWin) {
  const auto counts = [](const v1::PlanRequest& request) {
    GainsEstimator estimator({});
    const auto result = Plan(request, estimator);
    EXPECT_TRUE(result.ok()) << result.status();
    return std::vector<int64_t>{estimator.Count(IsProgram), estimator.Count(IsAsync), estimator.Count(IsPlanned),
                                estimator.Count(IsFused)};
  };
  v1::PlanRequest request = OfTensorParallel();
  request.add_constraints("compile.enable=false");
  EXPECT_THAT(counts(request), ::testing::ElementsAre(0, 0, 0, 0)) << "by a constraint";
  request = OfTensorParallel();
  request.mutable_base()->mutable_compile()->set_enable(false);
  EXPECT_THAT(counts(request), ::testing::ElementsAre(0, 0, 0, 0)) << "by the base";
  *request.mutable_base() = parallel::DefaultRecipe();
  request.mutable_base()->mutable_compile()->clear_enable();
  request.mutable_base()->mutable_compile()->clear_fuse();
  request.mutable_base()->mutable_compile()->clear_fall_back_to_eager();
  request.mutable_base()->mutable_compile()->clear_fsdp_bucketing();
  request.mutable_base()->mutable_parallelism()->clear_enable_async_tensor_parallel();
  EXPECT_THAT(counts(request), ::testing::ElementsAre(16, 12, 8, 4)) << "a base that leaves them open";
  request = OfTensorParallel();
  request.add_constraints("parallelism.enable_async_tensor_parallel=false");
  EXPECT_THAT(counts(request), ::testing::ElementsAre(12, 0, 8, 4));
  request.add_constraints("compile.fsdp_bucketing=block");
  EXPECT_THAT(counts(request), ::testing::ElementsAre(8, 0, 0, 4));
  request = OfTensorParallel();
  request.mutable_base()->mutable_parallelism()->set_enable_async_tensor_parallel(false);
  request.mutable_base()->mutable_compile()->set_fsdp_bucketing(v1::BUCKET_BY_BLOCK);
  EXPECT_THAT(counts(request), ::testing::ElementsAre(8, 0, 0, 4));
  request.mutable_base()->mutable_compile()->set_enable(true);
  request.mutable_base()->mutable_parallelism()->clear_enable_async_tensor_parallel();
  const auto asked = counts(request);
  EXPECT_GT(asked[0], 16) << "the base's, in all recipes";
  EXPECT_EQ(asked[1], 8) << "the four best, and these with fused operators";
}

TEST(LastChoices, OperatorsAreFusedWhereThatKeepsWhatIsTrainedAndHasACompiler) {
  const auto tried = [](const v1::PlanRequest& request) {
    GainsEstimator estimator({});
    const auto result = Plan(request, estimator);
    EXPECT_TRUE(result.ok()) << result.status();
    EXPECT_GT(estimator.Count(IsProgram), 0);
    return estimator.Count(IsFused);
  };
  EXPECT_EQ(tried(OfTensorParallel()), 4);
  for (const char* const key : {"compile.fuse=false", "compile.fall_back_to_eager=false"}) {
    v1::PlanRequest constrained = OfTensorParallel();
    constrained.add_constraints(key);
    EXPECT_EQ(tried(constrained), 0) << key;
  }
  v1::PlanRequest named = OfTensorParallel();
  named.mutable_base()->mutable_compile()->set_fall_back_to_eager(false);
  EXPECT_EQ(tried(named), 0);
  named.mutable_base()->mutable_compile()->set_fall_back_to_eager(true);
  EXPECT_EQ(tried(named), 4);
  named.mutable_base()->mutable_compile()->set_fuse(false);
  EXPECT_EQ(tried(named), 0);
  v1::PlanRequest resumed = OfTensorParallel();
  *resumed.mutable_resume_from() = parallel::DefaultRecipe();
  resumed.mutable_resume_from()->mutable_training()->set_global_batch_size(resumed.global_batch());
  resumed.mutable_resume_from()->mutable_training()->set_seq_len(resumed.seq_len());
  EXPECT_EQ(tried(resumed), 0) << "roundings stay";
  v1::PlanRequest several = OfTensorParallel();
  *several.mutable_cluster() = sim::ParseCluster("cpu:4x2").value();
  several.mutable_cluster()->mutable_device()->set_memory_bytes(int64_t{80} << 30);
  several.mutable_cluster()->mutable_device()->set_reserve_bytes(0);
  EXPECT_EQ(tried(several), 0) << "hosts may have other compilers";
}

// On GPUs of a plan whose recipes are programs anyway, since it was asked for that.
TEST(LastChoices, FusingIsTriedOnGpusWhereProgramsAreAskedFor) {
  const auto tried = [](bool enabled) {
    v1::PlanRequest request = OfTensorParallel();
    *request.mutable_cluster() = Request().cluster();
    if (enabled) request.add_constraints("compile.enable=true");
    GainsEstimator estimator({});
    const auto result = Plan(request, estimator);
    EXPECT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(estimator.Count(IsAsync), 0);
    EXPECT_EQ(estimator.Count(IsProgram) > 0, enabled);
    return estimator.Count(IsFused);
  };
  EXPECT_EQ(tried(true), 4);
  EXPECT_EQ(tried(false), 0);
}

// Whoever chose it: the plan before, or the user; on GPUs too.
TEST(LastChoices, ARunThatGoesOnStaysFused) {
  const auto resumed = [] {
    v1::PlanRequest request = OfTensorParallel();
    v1::Recipe& before = *request.mutable_resume_from();
    before = parallel::DefaultRecipe();
    before.mutable_training()->set_global_batch_size(request.global_batch());
    before.mutable_training()->set_seq_len(request.seq_len());
    before.mutable_compile()->set_enable(true);
    before.mutable_compile()->set_fuse(true);
    before.mutable_compile()->set_fall_back_to_eager(true);
    return request;
  };
  for (const v1::Objective objective : {v1::STEP_TIME, v1::MEMORY}) {
    v1::PlanRequest request = resumed();
    request.set_objective(objective);
    GainsEstimator estimator({});
    ASSERT_OK_AND_ASSIGN(const auto result, Plan(request, estimator));
    EXPECT_EQ(estimator.Count(IsFused), static_cast<int64_t>(estimator.recipes.size()));
    EXPECT_TRUE(result.ranked(0).recipe().compile().fall_back_to_eager());
    EXPECT_THAT(result.explanation(), HasSubstr("They stay fused in all recipes of this plan"));
  }
  v1::PlanRequest on_gpus = resumed();
  *on_gpus.mutable_cluster() = Request().cluster();
  GainsEstimator of_gpus({});
  ASSERT_OK_AND_ASSIGN(const auto on_gpu, Plan(on_gpus, of_gpus));
  EXPECT_EQ(of_gpus.Count(IsFused), static_cast<int64_t>(of_gpus.recipes.size()));
  // Hosts of several compilers do not end a run that one compiler has begun.
  v1::PlanRequest several = resumed();
  several.mutable_resume_from()->mutable_compile()->set_fall_back_to_eager(false);
  several.mutable_cluster()->set_nodes(2);
  several.mutable_cluster()->set_devices_per_node(4);
  *several.mutable_cluster()->mutable_tiers() = sim::ParseCluster("cpu:4x2").value().tiers();
  GainsEstimator on_several({});
  ASSERT_OK_AND_ASSIGN(const auto of_several, Plan(several, on_several));
  EXPECT_TRUE(IsFused(of_several.ranked(0).recipe()));
  EXPECT_EQ(on_several.Count(IsFused), static_cast<int64_t>(on_several.recipes.size()));
  EXPECT_TRUE(of_several.ranked(0).recipe().compile().fall_back_to_eager());
  EXPECT_THAT(of_several.explanation(),
              HasSubstr("2 hosts have kernels of one compiler and processor or card: if not, all train"));
  several.add_constraints("compile.fall_back_to_eager=false");
  GainsEstimator forbidden({});
  ASSERT_OK_AND_ASSIGN(const auto of_forbidden, Plan(several, forbidden));
  EXPECT_FALSE(of_forbidden.ranked(0).recipe().compile().fall_back_to_eager());
  EXPECT_THAT(of_forbidden.explanation(), HasSubstr("if not, the run ends and says so"));

  v1::PlanRequest named = resumed();
  named.mutable_base()->mutable_compile()->set_fuse(false);
  v1::PlanRequest eager = resumed();
  eager.add_constraints("compile.enable=false");
  const std::pair<v1::PlanRequest, const char*> not_kept[] = {
      {named, ""},
      {eager, "compile.enable = false is asked for, so they are not"}};
  for (const auto& [request, why] : not_kept) {
    GainsEstimator estimator({});
    ASSERT_OK_AND_ASSIGN(const auto result, Plan(request, estimator));
    EXPECT_EQ(estimator.Count(IsFused), 0) << why;
    if (*why == 0) {
      EXPECT_THAT(result.explanation(), Not(HasSubstr("has fused operators")));
    } else {
      EXPECT_THAT(result.explanation(), HasSubstr(why));
    }
  }
}

TEST(LastChoices, AreForDevicesOnWhichProgramsTrainAndForTheTime) {
  for (const bool on_gpus : {true, false}) {
    v1::PlanRequest request = OfTensorParallel();
    if (on_gpus) {
      *request.mutable_cluster() = Request().cluster();
    } else {
      request.set_objective(v1::MEMORY);
    }
    GainsEstimator estimator({});
    ASSERT_OK_AND_ASSIGN(const auto result, Plan(request, estimator));
    EXPECT_EQ(estimator.Count(IsProgram), 0);
    EXPECT_THAT(result.explanation(), Not(HasSubstr("Tried last")));
  }
}

bool HasMasters(const v1::Recipe& recipe) { return recipe.optimizer().master_weights(); }

// Of replicas, which hold whole parameters, on GPUs.
v1::PlanRequest OfReplicas() {
  v1::PlanRequest request = Request();
  request.mutable_base()->clear_optimizer();
  request.set_top(1000);
  request.set_budget_seconds(60);
  request.add_constraints("parallelism.data_parallel_replicate_degree=8");
  request.add_constraints("training.mixed_precision_param=bfloat16");
  return request;
}

TEST(LastChoices, MastersAreTriedOnWholeParametersAndSayWhatTheyBought) {
  GainsEstimator estimator({});
  ASSERT_OK_AND_ASSIGN(const auto result, Plan(OfReplicas(), estimator));
  EXPECT_EQ(estimator.Count(HasMasters), 4);
  const v1::Recipe& best = result.ranked(0).recipe();
  EXPECT_TRUE(HasMasters(best));
  EXPECT_EQ(best.training().dtype(), v1::BFLOAT16);
  EXPECT_DOUBLE_EQ(result.ranked(0).step_time_seconds(), 10.7);
  EXPECT_THAT(result.explanation(), HasSubstr("\n- Tried last: masters beside parameters in 16 bits (optimizer.master_weights): "
                                              "saves 300 ms of 11.00 s a step and takes as much memory"));
  EXPECT_THAT(Summarize(best), HasSubstr("masters beside the parameters"));
  EXPECT_THAT(result.ranked(0).recipe_toml(), HasSubstr("master_weights = true"));
}

TEST(LastChoices, MastersAreNotTriedWhereKeysNameThemOrNothingIsSpared) {
  const auto tried = [](const v1::PlanRequest& request) {
    GainsEstimator estimator({});
    const auto result = Plan(request, estimator);
    EXPECT_TRUE(result.ok()) << result.status();
    return estimator.Count(HasMasters);
  };
  for (const char* const key : {"training.dtype=float32", "optimizer.master_weights=false"}) {
    v1::PlanRequest constrained = OfReplicas();
    constrained.add_constraints(key);
    EXPECT_EQ(tried(constrained), 0) << key;
  }
  v1::PlanRequest named = OfReplicas();
  named.mutable_base()->mutable_training()->set_dtype(v1::FLOAT32);
  EXPECT_EQ(tried(named), 0);
  v1::PlanRequest resumed = OfReplicas();
  *resumed.mutable_resume_from() = parallel::DefaultRecipe();
  resumed.mutable_resume_from()->mutable_training()->set_global_batch_size(resumed.global_batch());
  resumed.mutable_resume_from()->mutable_training()->set_seq_len(resumed.seq_len());
  EXPECT_EQ(tried(resumed), 0) << "a checkpoint's optimizer is kept";
  v1::PlanRequest smallest = OfReplicas();
  smallest.set_objective(v1::MEMORY);
  EXPECT_EQ(tried(smallest), 0);
  v1::PlanRequest sharded = Request();
  sharded.mutable_base()->clear_optimizer();
  sharded.set_budget_seconds(60);
  sharded.add_constraints("parallelism.data_parallel_shard_degree=8");
  EXPECT_EQ(tried(sharded), 0) << "shards are made into values on the way to their gather";
}

// Without tensor parallel there is nothing to make asynchronous; gathers two layers ahead are those of blocks.
TEST(LastChoices, AreNotTriedWhereTheyChangeNothing) {
  GainsEstimator estimator({});
  ASSERT_OK_AND_ASSIGN(const auto result, Plan(OnCpus(), estimator));
  EXPECT_EQ(result.ranked(0).recipe().parallelism().tensor_parallel_degree(), 1);
  EXPECT_THAT(result.explanation(), Not(HasSubstr("asynchronous tensor parallel")));
  for (const v1::Recipe& recipe : estimator.recipes) {
    if (IsAsync(recipe)) {
      EXPECT_GT(recipe.parallelism().tensor_parallel_degree(), 1);
    }
    if (IsPlanned(recipe)) {
      EXPECT_EQ(recipe.parallelism().fsdp_prefetch_depth(), 1);
      EXPECT_TRUE(HasShards(recipe));
    }
  }
}

}  // namespace
}  // namespace legoai::planner
