#include "planner/explain.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace legoai::planner {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

v1::Recipe MakeRecipe(int64_t tp, v1::ActivationCheckpointMode mode) {
  v1::Recipe recipe;
  recipe.mutable_training()->set_global_batch_size(16);
  recipe.mutable_training()->set_local_batch_size(2);
  recipe.mutable_training()->set_mixed_precision_param(v1::BFLOAT16);
  auto* parallelism = recipe.mutable_parallelism();
  parallelism->set_data_parallel_replicate_degree(1);
  parallelism->set_data_parallel_shard_degree(4 / tp);
  parallelism->set_tensor_parallel_degree(tp);
  parallelism->set_pipeline_parallel_degree(1);
  recipe.mutable_activation_checkpoint()->set_mode(mode);
  return recipe;
}

v1::Estimate MakeEstimate(const v1::Recipe& recipe, double compute, double exposed, int64_t gib) {
  v1::Estimate estimate;
  *estimate.mutable_recipe() = recipe;
  estimate.set_step_time_seconds(compute + exposed);
  estimate.mutable_breakdown()->set_compute_seconds(compute);
  estimate.mutable_breakdown()->set_exposed_communication_seconds(exposed);
  auto* stage = estimate.add_stages();
  stage->set_capacity_bytes(int64_t{80} << 30);
  stage->set_peak_allocated_bytes(gib << 30);
  stage->set_peak_at("model.layers.1, backward");
  auto* share = estimate.add_cost_models();
  share->set_name("roofline");
  share->set_share_of_compute_time(1);
  return estimate;
}

v1::PlanResult ResultWith(const v1::Recipe& recipe, const std::string& rule, const std::string& reason) {
  v1::PlanResult result;
  result.set_captured(3);
  auto* rejected = result.add_rejected();
  *rejected->mutable_recipe() = recipe;
  rejected->set_rule(rule);
  rejected->set_reason(reason);
  return result;
}

TEST(Summarize, SaysWhatARecipeDecides) {
  EXPECT_EQ(Summarize(MakeRecipe(2, v1::AC_FULL)),
            "shard 2, tp 2, local batch 2 accumulated 4 times, full checkpointing, bfloat16");
  v1::Recipe recipe = MakeRecipe(1, v1::AC_NONE);
  recipe.mutable_training()->set_global_batch_size(8);
  EXPECT_EQ(Summarize(recipe), "shard 4, local batch 2, no checkpointing, bfloat16");
}

TEST(Explain, TheWinnerItsTimeAndItsMemory) {
  const std::string text = Explain({MakeEstimate(MakeRecipe(1, v1::AC_NONE), 3, 1, 40)}, {});
  EXPECT_THAT(text, HasSubstr("4 s a step, of which 75 % compute, 25 % exposed communication"));
  EXPECT_THAT(text, HasSubstr("40.0 GiB of 80.0 GiB usable, at model.layers.1, backward"));
  EXPECT_THAT(text, HasSubstr("timed by roofline (100 %)"));
  EXPECT_THAT(text, Not(HasSubstr("\n")));
}

TEST(Explain, WhatEachChoiceWouldCost) {
  const v1::Recipe winner = MakeRecipe(1, v1::AC_NONE);
  const std::string text = Explain({MakeEstimate(winner, 3, 1, 40), MakeEstimate(MakeRecipe(2, v1::AC_NONE), 3, 1.5, 40)},
                                   ResultWith(MakeRecipe(1, v1::AC_FULL), "out_of_memory", "stage 0 needs 90 GiB"));
  EXPECT_THAT(text, HasSubstr("Another tensor parallel degree: shard 2, tp 2,"));
  EXPECT_THAT(text, HasSubstr("is 12.5 % slower, mostly exposed communication (+0.5 s)"));
  EXPECT_THAT(text, HasSubstr("Another checkpointing: none fits; shard 4, local batch 2 accumulated 2 times, full"));
  EXPECT_THAT(text, HasSubstr("stage 0 needs 90 GiB"));
  EXPECT_THAT(text, Not(HasSubstr("Another number of stages")));
  EXPECT_THAT(text, Not(HasSubstr("The next one")));  // told already
}

TEST(Explain, NearTiesAndFullDevicesAreSaid) {
  const v1::Recipe recipe = MakeRecipe(1, v1::AC_NONE);
  const std::string text =
      Explain({MakeEstimate(recipe, 4, 0, 79), MakeEstimate(recipe, 4.01, 0, 78), MakeEstimate(recipe, 5, 0, 60)}, {});
  EXPECT_THAT(text, HasSubstr("2 recipes lie within 1 %"));
  EXPECT_THAT(text, HasSubstr("leaves 1.2 % of the memory"));
  EXPECT_THAT(text,
              HasSubstr("the fastest that leaves at least 5 %, shard 4, local batch 2 accumulated 2 times, no checkpointing, "
                        "bfloat16 is 25.0 % slower"));
  EXPECT_THAT(text, HasSubstr("The next one"));
}

TEST(Explain, WhatWasNotReached) {
  v1::PlanResult result;
  result.set_captured(1);
  result.set_not_reached(7);
  const v1::Recipe same = MakeRecipe(1, v1::AC_NONE);
  const std::string text = Explain({MakeEstimate(MakeRecipe(1, v1::AC_NONE), 3, 1, 40)}, result, {8, {{&same, 1.25}}});
  EXPECT_THAT(text, HasSubstr("7 further recipes"));
  EXPECT_THAT(text, HasSubstr("25.0 % slower than the fastest one by the closed-form estimate"));
}

// That the others of a kind do not fit is not said while some of it were not simulated.
TEST(Explain, AKindThatTheBudgetDidNotReachIsNotCalledTooLarge) {
  v1::PlanResult result = ResultWith(MakeRecipe(1, v1::AC_FULL), "out_of_memory", "needs at least 90 GiB");
  result.set_not_reached(3);
  const v1::Recipe same = MakeRecipe(1, v1::AC_NONE), full = MakeRecipe(2, v1::AC_FULL), slow = MakeRecipe(4, v1::AC_FULL);
  const std::vector<v1::Estimate> ranked = {MakeEstimate(MakeRecipe(1, v1::AC_NONE), 3, 1, 40)};
  const std::string text = Explain(ranked, result, {8, {{&same, 1.01}, {&full, 1.25}, {&slow, 1.5}}});
  EXPECT_THAT(text,
              HasSubstr("Another checkpointing: 2 of this kind were not reached within the budget of 8 s; the best of them, "
                        "shard 2, tp 2, local batch 2 accumulated 4 times, full checkpointing, bfloat16, is 25.0 % slower "
                        "than the fastest one by the closed-form estimate."));
  EXPECT_THAT(text, Not(HasSubstr("none")));
  EXPECT_THAT(Explain(ranked, result), HasSubstr("Another checkpointing: none that was looked at fits; shard 4"));
}

TEST(Explain, TheRulesThatLeaveNothingAreNamedTheMostFrequentFirst) {
  v1::PlanResult result;
  result.set_space(12);
  (*result.mutable_pruned())["a_rule"] = 3;
  (*result.mutable_pruned())["the_rule"] = 7;
  (*result.mutable_pruned())["other_rule"] = 2;
  EXPECT_EQ(Explain({}, result, {}, {{"the_rule", "key = 3: must be 1"}}),
            "No recipe of the space is legal for this model, batch and cluster. Of 12:\n"
            "- 7 dropped by the_rule, for instance: key = 3: must be 1\n- 3 dropped by a_rule\n- 2 dropped by other_rule");
}

TEST(Explain, NothingFitsOnlyIfThatIsKnown) {
  v1::PlanResult result = ResultWith(MakeRecipe(1, v1::AC_FULL), "out_of_memory", "needs 90 GiB");
  EXPECT_THAT(Explain({}, result), StartsWith("Nothing fits. The closest is shard 4"));
  result.set_not_reached(2);
  EXPECT_THAT(Explain({}, result), StartsWith("Nothing that was simulated fits."));
  EXPECT_THAT(Explain({}, result), HasSubstr("larger --budget-seconds"));
  result.set_captured(0);
  EXPECT_THAT(Explain({}, result), StartsWith("Nothing was simulated to its end."));
  EXPECT_THAT(Explain({}, result), Not(HasSubstr("estimated")));
  result.add_ranked()->set_estimated(true);
  EXPECT_THAT(Explain({}, result), HasSubstr("1 of them is ranked by the closed-form estimate, marked as estimated"));
  EXPECT_THAT(Explain({}, {}), HasSubstr("No recipe of the space is legal"));
  EXPECT_THAT(Explain({}, ResultWith(MakeRecipe(1, v1::AC_FULL), "failed", "crash")), Not(HasSubstr("closest")));
}

}  // namespace
}  // namespace legoai::planner
