#include "planner/explain.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <regex>
#include <string>

#include "planner/compare.h"
#include "planner/testing/story.h"
#include "proto/testing/seeded_random.h"

namespace legoai::planner {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::MakePipeline;
using testing::MakeRecipe;
using ::testing::Not;
using ::testing::StartsWith;
using testing::Story;

constexpr char kSmallShard[] = "shard 4, local batch 2 accumulated 2 times";

std::string Text(Story& story) { return Explain(story.facts(), story.result()); }

int Count(const std::string& text, const std::string& part) {
  int count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

TEST(Explain, SaysWhatPoliciesBought) {
  v1::Recipe kept = MakeRecipe(1, v1::AC_SELECTIVE);
  kept.mutable_activation_checkpoint()->set_selective_ac_option("policy");
  const PolicyGain gain = {.seconds = 0.1,
                           .full_seconds = 0.4,
                           .saved_share = 0.75,
                           .none_peak_bytes = int64_t{95} << 30,
                           .full_peak_bytes = int64_t{30} << 30};
  Story first;
  first.Ranked(kept, {.compute = 2}).Ranked(MakeRecipe(1, v1::AC_FULL), {.compute = 2.4});
  first.facts().policies = 1;
  first.facts().ranked[0].gain = &gain;
  EXPECT_THAT(Text(first), HasSubstr("\n- Its policy (activation_checkpoint.selective_ac_policy) saves 75 % of the recomputation "
                                     "of full checkpointing: 100 ms a step are left of 400 ms. With everything recomputed its "
                                     "fullest device would need 30.0 GiB, with nothing recomputed 95.0 GiB."));
  Story second;
  second.Ranked(MakeRecipe(2, v1::AC_NONE), {.compute = 2}).Ranked(kept, {.compute = 2.4});
  second.facts().policies = 3;
  second.facts().ranked[1].gain = &gain;
  EXPECT_THAT(Text(second),
              HasSubstr("\n- Policies were made for 3 layouts that memory holds back; of these the first is rank 2"));
  second.facts().ranked[1].gain = nullptr;
  EXPECT_THAT(Text(second), HasSubstr("; none keeps more than a recipe without one."));
  second.facts().policies = 0;
  EXPECT_THAT(Text(second), HasSubstr("\n- No policy was made: memory holds back no layout that would be faster."));
  second.facts().policies.reset();
  EXPECT_THAT(Text(second), AllOf(Not(HasSubstr("Policies")), Not(HasSubstr("No policy"))));
}

TEST(Summarize, SaysWhatARecipeDecides) {
  EXPECT_NE(Summarize(MakeRecipe(2, v1::AC_SELECTIVE)).find("checkpointing of every 2. block"), std::string::npos);
  EXPECT_EQ(Summarize(MakeRecipe(2, v1::AC_FULL)),
            "shard 2, tp 2, local batch 2 accumulated 4 times, full checkpointing, bfloat16");
  v1::Recipe recipe = MakeRecipe(1, v1::AC_NONE);
  recipe.mutable_training()->set_global_batch_size(8);
  EXPECT_EQ(Summarize(recipe), "shard 4, local batch 2, no checkpointing, bfloat16");
}

TEST(Explain, TheWinnerItsTimeItsMemoryAndItsLinks) {
  Story story;
  story.Ranked(MakeRecipe(1, v1::AC_NONE), {.compute = 3, .exposed = 1});
  const std::string text = Text(story);
  EXPECT_THAT(text, StartsWith(std::string("The fastest recipe that fits is ") + kSmallShard));
  EXPECT_THAT(text, HasSubstr("4 s a step, of which 75 % compute, 25 % exposed communication"));
  EXPECT_THAT(text, HasSubstr("40.0 GiB of 80.0 GiB usable are allocated (not reserved), at model.layers.1, backward"));
  EXPECT_THAT(text, HasSubstr("timed by roofline (100 %)"));
  EXPECT_THAT(text, HasSubstr("\n- Its links: sharding puts "));
  EXPECT_THAT(text, HasSubstr("beside 3 s of compute that can hide it."));
  EXPECT_THAT(text, Not(HasSubstr("Its bubble")));
  EXPECT_EQ(Count(text, "\n"), 1);
}

TEST(Explain, TheWinnersBubble) {
  Story story;
  story.Ranked(MakePipeline(4), {.compute = 3, .bubble = 1});
  EXPECT_THAT(Text(story), HasSubstr("\n- Its bubble: (p - 1) / m = 3 / 16, 19 % of a stage's work."));
}

TEST(Explain, WhatEachChoiceWouldCost) {
  Story story;
  story.Ranked(MakeRecipe(1, v1::AC_NONE), {.compute = 3, .exposed = 1});
  story.Ranked(MakeRecipe(2, v1::AC_NONE), {.compute = 3, .exposed = 1.5});
  story.Rejected(MakeRecipe(1, v1::AC_FULL), "out_of_memory", "stage 0 needs 90 GiB");
  const std::string text = Text(story);
  EXPECT_THAT(text, HasSubstr("Another tensor parallel degree: rank 2 (shard 2, tp 2,"));
  EXPECT_THAT(text, HasSubstr(") is 12 % slower, mostly exposed communication (+0.5 s): tensor parallelism puts"));
  EXPECT_THAT(text, HasSubstr("Another checkpointing: none fits; shard 4, local batch 2 accumulated 2 times, full"));
  EXPECT_THAT(text, HasSubstr("stage 0 needs 90 GiB"));
  EXPECT_THAT(text, Not(HasSubstr("Another number of stages")));
  EXPECT_THAT(text, Not(HasSubstr("The next one")));  // told already
}

TEST(Explain, ARecipeIsNamedOnceWhateverItDecidesOtherwise) {
  Story story;
  story.Ranked(MakeRecipe(1, v1::AC_NONE), {.compute = 3}, 79);
  story.Ranked(MakeRecipe(2, v1::AC_FULL), {.compute = 40}, 20);
  const std::string text = Text(story);
  EXPECT_THAT(text, HasSubstr("Another checkpointing or tensor parallel degree: rank 2 (shard 2, tp 2, "));
  EXPECT_THAT(text, HasSubstr("takes 13 times as long"));
  EXPECT_THAT(text, HasSubstr("It leaves 1.2 % of the memory, which fragmentation may take; of those that leave at least 5 % the "
                              "first is rank 2, below."));
  EXPECT_EQ(Count(text, "shard 2, tp 2"), 1);
  EXPECT_EQ(Count(text, kSmallShard), 1);
}

TEST(Explain, NearTiesAndFullDevicesAreSaid) {
  const v1::Recipe recipe = MakeRecipe(1, v1::AC_NONE);
  Story story;
  story.Ranked(recipe, {.compute = 4.01}, 78).Ranked(recipe, {.compute = 4}, 79).Ranked(recipe, {.compute = 5}, 60);
  const std::string text = Text(story);
  EXPECT_THAT(text, HasSubstr("bfloat16, within the noise of the prediction: 4.01 s a step"));
  EXPECT_THAT(text, HasSubstr("2 recipes lie within 1 % of the shortest step, 4 s,"));
  EXPECT_THAT(text, HasSubstr("It leaves 2.5 % of the memory"));
  EXPECT_THAT(text,
              HasSubstr("the first is this: rank 3 (shard 4, local batch 2 accumulated 2 times, no checkpointing, bfloat16) "
                        "is 25 % slower"));
  EXPECT_THAT(text,
              HasSubstr("The next one: rank 2 (shard 4, local batch 2 accumulated 2 times, no checkpointing, bfloat16) is as "
                        "fast, within the noise of the prediction."));
}

TEST(Explain, WhatALittleMoreMemoryWouldGive) {
  Story story;
  story.Ranked(MakeRecipe(1, v1::AC_FULL), {.compute = 4});
  story.Unfit(MakeRecipe(1, v1::AC_NONE), {.compute = 3}, 83);
  EXPECT_THAT(Text(story), HasSubstr("Another checkpointing: none fits; shard 4, local batch 2 accumulated 2 times, no "
                                     "checkpointing, bfloat16: stage 0 needs too much; with 3.00 GiB more on each device it fits "
                                     "and takes 25 % less time."));
  EXPECT_EQ(Count(Text(story), "3.00 GiB"), 1);

  Story same_choices;
  v1::Recipe larger = MakeRecipe(1, v1::AC_FULL);
  larger.mutable_training()->set_local_batch_size(4);
  same_choices.Ranked(MakeRecipe(1, v1::AC_FULL), {.compute = 4});
  same_choices.Unfit(larger, {.compute = 3}, 90);
  EXPECT_THAT(Text(same_choices), HasSubstr("\n- More memory: shard 4, local batch 4, full checkpointing, bfloat16 does not fit; "
                                            "with 10.0 GiB more on each device it fits and takes 25 % less time."));
  Story slower;
  slower.Ranked(MakeRecipe(1, v1::AC_FULL), {.compute = 4});
  slower.Unfit(larger, {.compute = 4}, 90);
  EXPECT_THAT(Text(slower), Not(HasSubstr("More memory")));
}

TEST(Explain, WhatTheCountLeftOut) {
  Story story;
  story.Ranked(MakeRecipe(1, v1::AC_NONE), {.compute = 3, .exposed = 1}).NotSimulated(MakeRecipe(1, v1::AC_NONE), 1.25);
  const std::string text = Text(story);
  EXPECT_THAT(text, HasSubstr("1 recipe was simulated"));
  EXPECT_THAT(text, HasSubstr("1 more may fit (`lego plan --budget-seconds 0` simulates all)"));
  EXPECT_THAT(text, HasSubstr("By that estimate the fastest that was not simulated is 25 % slower."));
  EXPECT_THAT(text, Not(HasSubstr("early")));
}

TEST(Explain, WhatTheBudgetOfSecondsEnded) {
  Story story;
  story.Ranked(MakeRecipe(1, v1::AC_NONE), {.compute = 3, .exposed = 1}).NotSimulated(MakeRecipe(1, v1::AC_NONE), 1.25);
  story.facts().stopped_early = true;
  story.facts().planned = 64;
  EXPECT_THAT(Text(story),
              HasSubstr("Stopped early after 1 of 64 simulations by the budget of 8 s; the ranking may change with more "
                        "time."));
}

// That the others of a kind do not fit is not said while some of it were not simulated.
TEST(Explain, AKindThatWasNotSimulatedIsNotCalledTooLarge) {
  Story story;
  story.Ranked(MakeRecipe(1, v1::AC_NONE), {.compute = 3, .exposed = 1});
  story.Rejected(MakeRecipe(1, v1::AC_FULL), "out_of_memory", "needs at least 90 GiB");
  EXPECT_THAT(Text(story), HasSubstr("Another checkpointing: none fits; shard 4"));
  story.result().set_not_reached(3);  // as if some had not even been looked at
  EXPECT_THAT(Text(story), HasSubstr("Another checkpointing: none that was looked at fits; shard 4"));
  story.result().set_not_reached(0);
  story.NotSimulated(MakeRecipe(1, v1::AC_NONE), 1.01).NotSimulated(MakeRecipe(2, v1::AC_FULL), 1.25);
  const std::string text = Text(story);
  EXPECT_THAT(text,
              HasSubstr("none was simulated; by the closed-form estimate the best of the others, shard 2, tp 2, local batch 2 "
                        "accumulated 4 times, full checkpointing, bfloat16, is 25 % slower."));
  EXPECT_THAT(text, Not(HasSubstr("none fits")));
  story.Unfit(MakeRecipe(4, v1::AC_FULL), {.compute = 9}, 90);
  EXPECT_THAT(Text(story), HasSubstr("none that was simulated fits; by the closed-form estimate the best of the others"));
}

TEST(Explain, TheRulesThatLeaveNothingAreNamedTheMostFrequentFirst) {
  Story story;
  story.result().set_space(12);
  (*story.result().mutable_pruned())["a_rule"] = 3;
  (*story.result().mutable_pruned())["the_rule"] = 7;
  (*story.result().mutable_pruned())["other_rule"] = 2;
  story.space().reasons["the_rule"] = "key = 3: must be 1";
  EXPECT_EQ(Text(story),
            "No recipe of the space is legal for this model, batch and cluster. Of 12:\n"
            "- 7 dropped by the_rule, for instance: key = 3: must be 1\n- 3 dropped by a_rule\n- 2 dropped by other_rule");
}

TEST(Explain, NothingFitsOnlyIfThatIsKnown) {
  Story story;
  story.Unfit(MakeRecipe(1, v1::AC_FULL), {.compute = 1}, 90);
  EXPECT_THAT(Text(story), StartsWith("Nothing fits. The closest is shard 4"));
  story.NotSimulated(MakeRecipe(1, v1::AC_FULL), 1);
  story.facts().stopped_early = true;
  EXPECT_THAT(Text(story), StartsWith("Nothing that was simulated fits."));
  EXPECT_THAT(Text(story), HasSubstr("Stopped early after 1 of"));
  story.result().set_captured(0);
  EXPECT_THAT(Text(story), StartsWith("Nothing was simulated to its end."));
  EXPECT_THAT(Text(story), Not(HasSubstr("estimated")));
  story.result().add_ranked()->set_estimated(true);
  EXPECT_THAT(Text(story), HasSubstr("1 of them is ranked by the closed-form estimate, marked as estimated"));
  Story nothing;
  EXPECT_THAT(Text(nothing), HasSubstr("No recipe of the space is legal"));
  Story failed;
  failed.Rejected(MakeRecipe(1, v1::AC_FULL), "failed", "crash").result().set_failed(1);
  EXPECT_THAT(Text(failed), Not(HasSubstr("closest")));
}

TEST(Explain, NothingFitsSaysHowManyDevicesWouldDo) {
  Story story;
  story.Unfit(MakeRecipe(1, v1::AC_FULL), {.compute = 1}, 90);
  story.facts().larger = LargerCluster{3, BoundedRecipe{MakeRecipe(4, v1::AC_FULL), int64_t{60} << 30}};
  EXPECT_THAT(Text(story),
              HasSubstr("At least 12 devices (3 nodes of 4) like these are needed, by the closed-form bound: tp 4, local "
                        "batch 2 accumulated 8 times, full checkpointing, bfloat16 needs at least 60.0 GiB of each "
                        "there"));
  story.facts().larger = LargerCluster{1024, std::nullopt};
  EXPECT_THAT(Text(story), HasSubstr("nothing fits on any cluster of up to 4096 devices (1024 nodes of 4) like these either"));
}

TEST(StepTimeText, SaysWhatAReaderCanUse) {
  EXPECT_EQ(StepTimeText(1), "is as fast, within the noise of the prediction");
  EXPECT_EQ(StepTimeText(1.0099), "is as fast, within the noise of the prediction");
  EXPECT_EQ(StepTimeText(0.995), "is as fast, within the noise of the prediction");
  EXPECT_EQ(StepTimeText(1.012), "is 1.2 % slower");
  EXPECT_EQ(StepTimeText(1.25), "is 25 % slower");
  EXPECT_EQ(StepTimeText(2.5), "takes 2.5 times as long");
  EXPECT_EQ(StepTimeText(13.07), "takes 13 times as long");
  EXPECT_EQ(StepTimeText(0.8), "takes 20 % less time");
}

TEST(StepTimeText, NoRatioGivesZeroOrHundredsOfPercent) {
  SeededRandom random;
  for (int round = 0; round < 2000; ++round) {
    const double ratio = std::exp(std::uniform_real_distribution<>(-0.2, 5)(random));
    const std::string text = StepTimeText(ratio);
    EXPECT_FALSE(std::regex_search(text, std::regex("(^|[^.0-9])0(\\.0)? %|[0-9]{3} %"))) << ratio << ": " << text;
  }
}

TEST(BubbleText, IsStagesLessOneOverMicrobatches) {
  EXPECT_EQ(BubbleText(MakePipeline(4), 32), "(p - 1) / m = 3 / 16, 19 % of a stage's work");
  EXPECT_EQ(BubbleText(MakePipeline(2), 32), "(p - 1) / m = 1 / 8, 12 % of a stage's work");
  EXPECT_EQ(BubbleText(MakeRecipe(1, v1::AC_NONE), 32), "");
  v1::Recipe looped = MakePipeline(4);
  looped.mutable_parallelism()->set_pipeline_parallel_schedule(v1::INTERLEAVED_1F1B);
  looped.mutable_parallelism()->set_pipeline_parallel_layers_per_stage(2);
  EXPECT_EQ(BubbleText(looped, 32), "(p - 1) / (v m) = 3 / (4 x 16), 4.7 % of a stage's work");
}

TEST(CauseText, NamesTheLinkItsBytesAndWhatHidesThem) {
  Story story;
  story.Ranked(MakeRecipe(1, v1::AC_NONE), {.compute = 3, .exposed = 0.1});
  story.Ranked(MakeRecipe(2, v1::AC_NONE), {.compute = 3, .exposed = 0.145});
  const std::string text = CauseText(story.request(), story.facts().ranked[0], story.facts().ranked[1]);
  EXPECT_THAT(text, StartsWith(", mostly exposed communication (+0.045 s): tensor parallelism puts "));
  // 8 gathers and scatters in each of 32 blocks, 4 times 4096 tokens of 4096 bf16 values; half of it leaves a rank of two.
  EXPECT_THAT(text, HasSubstr(" puts 17.2 GB a step on each device's nvlink"));
  EXPECT_THAT(text, HasSubstr("GB/s reached): "));
  EXPECT_THAT(text, HasSubstr("which nothing hides; with this link "));
  EXPECT_THAT(text, HasSubstr("they would be equal"));
}

// The factor is one by which the closed forms, moved to the simulated times, make the two equal.
TEST(CauseText, TheFactorOfTheLinkIsTheBreakEven) {
  Story story;
  story.Ranked(MakeRecipe(1, v1::AC_NONE), {.compute = 3});
  const double w = story.facts().ranked[0].survivor->roofline.step_seconds;
  v1::Recipe other = MakeRecipe(2, v1::AC_NONE);
  v1::PlanRequest faster = story.request();
  auto* link = faster.mutable_cluster()->mutable_tiers(0)->mutable_link();
  link->set_bandwidth_bytes_per_second(3 * link->bandwidth_bytes_per_second());
  const double before = EstimateTime(story.request(), other)->step_seconds, after = EstimateTime(faster, other)->step_seconds;
  const double winner_after = EstimateTime(faster, MakeRecipe(1, v1::AC_NONE))->step_seconds;
  ASSERT_LT(after, before);
  // Simulated so that three times the bandwidth is just enough.
  const double simulated = 3 * (winner_after / w) * (before / after);
  story.Ranked(other, {.compute = 3, .exposed = simulated - 3});
  EXPECT_THAT(CauseText(story.request(), story.facts().ranked[0], story.facts().ranked[1]),
              HasSubstr("with this link 3.0 times as fast they would be equal"));
}

TEST(CauseText, ALinkThatCannotMakeUpForItIsSaidToo) {
  Story story;
  story.Ranked(MakeRecipe(1, v1::AC_NONE), {.compute = 3});
  story.Ranked(MakeRecipe(2, v1::AC_NONE), {.compute = 9, .exposed = 9});
  EXPECT_THAT(CauseText(story.request(), story.facts().ranked[0], story.facts().ranked[1]),
              HasSubstr("no faster link alone would make up for it"));
}

TEST(CauseText, ABubbleIsGivenInNumbersWithTheBatchThatWouldDo) {
  Story story;
  story.Ranked(MakeRecipe(1, v1::AC_NONE), {.compute = 3});
  story.Ranked(MakePipeline(4), {.compute = 3, .bubble = 0.1});
  const std::string text = CauseText(story.request(), story.facts().ranked[0], story.facts().ranked[1]);
  EXPECT_THAT(text, StartsWith(", mostly pipeline bubble (+0.1 s): (p - 1) / m = 3 / 16, 19 % of a stage's work"));
  EXPECT_THAT(text, HasSubstr("; with a global batch "));
}

TEST(CauseText, CheckpointingAndNearTies) {
  Story story;
  story.Ranked(MakeRecipe(1, v1::AC_NONE), {.compute = 3});
  story.Ranked(MakeRecipe(1, v1::AC_FULL), {.compute = 4});
  story.Ranked(MakeRecipe(2, v1::AC_NONE), {.compute = 3, .exposed = 0.02});
  const auto& ranked = story.facts().ranked;
  EXPECT_EQ(CauseText(story.request(), ranked[0], ranked[1]),
            ", mostly compute (+1 s): checkpointing runs each block's forward twice");
  EXPECT_EQ(CauseText(story.request(), ranked[0], ranked[2]), "");
}

}  // namespace
}  // namespace legoai::planner
