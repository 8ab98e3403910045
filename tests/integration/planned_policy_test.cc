// What plans make of activation_checkpoint.mode = "auto": policies within the budget, which train to the gradients of no
// checkpointing. The simulations are lego-sim's, in this process.
#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/hardware/catalog.h"
#include "core/recipe/recipe.h"
#include "planner/auto_sac.h"
#include "planner/estimates.h"
#include "planner/plan.h"
#include "proto/testing/assert_ok.h"
#include "simulator/estimate/estimate.h"
#include "tests/integration/cases.h"
#include "tests/integration/train_in_processes.h"

namespace legoai::integration {
namespace {

constexpr double kGiB = 1 << 30;

class EstimatorHere : public planner::Estimator {
 public:
  int64_t Slots() const override { return 1; }
  absl::Status Start(const v1::SimRequest& request) override {
    request_ = request;
    return absl::OkStatus();
  }
  absl::StatusOr<std::optional<v1::SimResponse>> Wait(absl::Duration) override {
    v1::SimResponse response;
    response.set_id(request_.id());
    const auto estimate = sim::EstimateRecipe(request_);
    if (estimate.ok()) {
      *response.mutable_estimate() = *estimate;
    } else {
      response.mutable_error()->set_code(static_cast<int>(estimate.status().code()));
      response.mutable_error()->set_message(std::string(estimate.status().message()));
    }
    return std::optional(response);
  }
  void StopAll() override {}

 private:
  v1::SimRequest request_;
};

struct Layout {
  std::string name;
  int64_t shard = 1, tp = 1, pp = 1;
  bool splits_tokens = true;
};

class PlannedPolicy : public testing::TestWithParam<Layout> {
 protected:
  PlannedPolicy() {
    recipe_ = parallel::DefaultRecipe();
    recipe_.mutable_training()->set_seq_len(64);
    recipe_.mutable_training()->set_local_batch_size(4);
    recipe_.mutable_training()->set_global_batch_size(4 * GetParam().shard);
    recipe_.mutable_training()->set_mixed_precision_param(v1::FLOAT32);
    v1::Parallelism* const p = recipe_.mutable_parallelism();
    p->set_data_parallel_shard_degree(GetParam().shard);
    p->set_tensor_parallel_degree(GetParam().tp);
    p->set_pipeline_parallel_degree(GetParam().pp);
    p->set_sequence_parallel(GetParam().splits_tokens);
    cluster_ = sim::ParseCluster("cpu:2x1").value();
  }

  v1::Recipe With(v1::ActivationCheckpointMode mode) const {
    v1::Recipe recipe = recipe_;
    recipe.mutable_activation_checkpoint()->set_mode(mode);
    return recipe;
  }
  v1::SimRequest Request(v1::ActivationCheckpointMode mode) const {
    v1::SimRequest request;
    *request.mutable_model() = model_;
    *request.mutable_cluster() = cluster_;
    *request.mutable_recipe() = With(mode);
    request.set_cost_mode(v1::COST_ROOFLINE);
    return request;
  }
  int64_t Peak(v1::ActivationCheckpointMode mode) const {
    return planner::PeakOf(sim::EstimateRecipe(Request(mode)).value());
  }
  // All recipes of this layout, by checkpointing.
  absl::StatusOr<v1::PlanResult> PlanWithin(double budget_gib) const {
    v1::PlanRequest request;
    *request.mutable_model() = model_;
    *request.mutable_cluster() = cluster_;
    request.set_global_batch(recipe_.training().global_batch_size());
    request.set_seq_len(recipe_.training().seq_len());
    *request.mutable_base() = With(v1::AC_AUTO);
    request.mutable_base()->mutable_activation_checkpoint()->set_memory_budget_gib(budget_gib);
    for (const auto& [key, value] : {std::pair("data_parallel_shard_degree", GetParam().shard),
                                     {"tensor_parallel_degree", GetParam().tp},
                                     {"pipeline_parallel_degree", GetParam().pp},
                                     {"pipeline_parallel_microbatch_size", 1}}) {
      request.add_constraints(absl::StrCat("parallelism.", key, "=", value));
    }
    request.add_constraints("parallelism.pipeline_parallel_schedule=1F1B");
    request.add_constraints("training.local_batch_size=4");
    request.set_top(100);
    EstimatorHere estimator;
    return planner::Plan(request, estimator);
  }
  Training TrainTwoSteps(const v1::Recipe& recipe) const {
    return Train({.name = GetParam().name, .model = model_, .recipe = recipe, .world_size = 2, .dropout_seed = {}}, 2);
  }

  v1::Model model_ = DeepLlama();
  v1::Recipe recipe_;
  v1::Cluster cluster_;
};

// What tells it apart from others of another checkpointing.
std::string LayoutOf(v1::Recipe recipe) {
  recipe.clear_activation_checkpoint();
  return recipe.SerializeAsString();
}

void ExpectProductsMayBeKept(const planner::BlockFacts& facts, const std::vector<planner::Group>& groups) {
  int64_t products = 0;
  for (const planner::Group& group : groups) {
    const planner::OperatorFacts& op = facts.operators[group.operators.front()];
    if (op.name != "aten::mm") continue;
    ++products;
    EXPECT_FALSE(group.always_recomputed) << op.module << " of block " << facts.block;
  }
  EXPECT_EQ(products, 6) << "all but the last one, which is not computed again";
}

bool HasPolicy(const v1::Recipe& recipe) { return recipe.activation_checkpoint().selective_ac_option() == "policy"; }

TEST_P(PlannedPolicy, KeepsWithinItsBudgetAndTrainsToTheGradientsOfNoCheckpointing) {
  const int64_t none = Peak(v1::AC_NONE), full = Peak(v1::AC_FULL);
  ASSERT_LT(full, none);
  const int64_t budget = full + (none - full) / 2;
  ASSERT_OK_AND_ASSIGN(const v1::PlanResult result, PlanWithin(static_cast<double>(budget) / kGiB));
  std::map<std::string, double> full_seconds;  // by layout
  for (const v1::RankedRecipe& ranked : result.ranked()) {
    EXPECT_LE(ranked.peak_memory_bytes(), budget);
    if (ranked.recipe().activation_checkpoint().mode() == v1::AC_FULL)
      full_seconds[LayoutOf(ranked.recipe())] = ranked.step_time_seconds();
  }
  int64_t policies = 0, compared = 0;
  for (const v1::RankedRecipe& ranked : result.ranked()) {
    if (!HasPolicy(ranked.recipe())) continue;
    if (const auto full_time = full_seconds.find(LayoutOf(ranked.recipe())); full_time != full_seconds.end()) {
      EXPECT_LT(ranked.step_time_seconds(), full_time->second);
      ++compared;
    }
    if (++policies > 1) continue;
    const Training without = TrainTwoSteps(With(v1::AC_NONE)), with = TrainTwoSteps(ranked.recipe());
    EXPECT_FALSE(without.first_gradients.empty());
    EXPECT_EQ(with.first_gradients, without.first_gradients) << ranked.recipe_toml();
    EXPECT_EQ(with.losses, without.losses);
    EXPECT_EQ(with.parameters, without.parameters);
  }
  EXPECT_GT(policies, 0) << result.explanation();
  EXPECT_GT(compared, 0);
  EXPECT_NE(result.explanation().find(HasPolicy(result.ranked(0).recipe()) ? "\n- Its policy" : "\n- Policies were made for"),
            std::string::npos)
      << result.explanation();
}

// Of the products whose parts the ranks of tensor parallel add up: a policy may keep them, whether the sum is of a part of the
// tokens or of all.
TEST_P(PlannedPolicy, MayKeepEveryProductThatIsComputedAgain) {
  model_.set_head_dim(8 * model_.head_dim());  // so that the product behind attention takes the most time for each byte
  const int64_t none = Peak(v1::AC_NONE), full = Peak(v1::AC_FULL);
  std::optional<v1::Recipe> keeps;
  for (int percent = 20; percent < 100 && !keeps; percent += 10) {
    EstimatorHere estimator;
    const planner::SacOptions options = {.budget_bytes = full + (none - full) * percent / 100,
                                         .solver = planner::LocalSolver::kIlp, .cancel = {}};
    ASSERT_OK_AND_ASSIGN(const auto found, planner::AutoSac(Request(v1::AC_FULL), options, estimator));
    EXPECT_LE(planner::PeakOf(found.chosen), options.budget_bytes);
    EXPECT_LE(found.chosen.step_time_seconds(), found.full.step_time_seconds());
    ASSERT_FALSE(found.stages.empty());
    for (size_t s = 0; s < found.stages.size(); ++s) {
      for (size_t block = 0; block < found.stages[s].groups.size(); ++block)
        ExpectProductsMayBeKept(found.stages[s].facts.blocks[block], found.stages[s].groups[block]);
    }
    if (found.section.selective_ac_policy().find("self_attn.o_proj aten::mm") == std::string::npos) continue;
    keeps = recipe_;
    *keeps->mutable_activation_checkpoint() = found.section;
  }
  ASSERT_TRUE(keeps) << "the product behind attention is kept for no budget";
  const Training without = TrainTwoSteps(With(v1::AC_NONE)), with = TrainTwoSteps(*keeps);
  EXPECT_FALSE(without.first_gradients.empty());
  EXPECT_EQ(with.first_gradients, without.first_gradients) << keeps->activation_checkpoint().selective_ac_policy();
  EXPECT_EQ(with.losses, without.losses);
  EXPECT_EQ(with.parameters, without.parameters);
}

TEST_P(PlannedPolicy, IsNotNeededWhereAllFits) {
  ASSERT_OK_AND_ASSIGN(const v1::PlanResult result, PlanWithin(0));
  ASSERT_GT(result.ranked_size(), 0);
  EXPECT_EQ(result.ranked(0).recipe().activation_checkpoint().mode(), v1::AC_NONE);
  for (const v1::RankedRecipe& ranked : result.ranked()) EXPECT_FALSE(HasPolicy(ranked.recipe()));
  EXPECT_NE(result.explanation().find("\n- No policy was made"), std::string::npos) << result.explanation();
}

TEST_P(PlannedPolicy, BelowWhatAnyReachesNamesTheLeast) {
  const int64_t full = Peak(v1::AC_FULL);
  ASSERT_OK_AND_ASSIGN(const v1::PlanResult result, PlanWithin(static_cast<double>(full - 1) / kGiB));
  EXPECT_EQ(result.ranked_size(), 0);
  ASSERT_GT(result.rejected_size(), 0);
  EXPECT_EQ(result.rejected(0).peak_memory_bytes(), full);
  EXPECT_EQ(result.rejected(0).recipe().activation_checkpoint().mode(), v1::AC_FULL);
  EXPECT_NE(result.explanation().find("Nothing fits. The closest is "), std::string::npos) << result.explanation();
}

INSTANTIATE_TEST_SUITE_P(Layouts, PlannedPolicy,
                         testing::Values(Layout{.name = "fsdp2", .shard = 2}, Layout{.name = "tp2", .tp = 2},
                                         Layout{.name = "tp2_whole", .tp = 2, .splits_tokens = false},
                                         Layout{.name = "pp2", .pp = 2}),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace legoai::integration
