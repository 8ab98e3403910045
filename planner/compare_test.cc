#include "planner/compare.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <regex>
#include <string>

#include "planner/testing/story.h"

namespace legoai::planner {
namespace {

using ::testing::HasSubstr;
using testing::MakePipeline;
using testing::MakeRecipe;
using ::testing::StartsWith;
using testing::Story;

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
  const unsigned seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
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
