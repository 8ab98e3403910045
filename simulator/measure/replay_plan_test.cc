#include "simulator/measure/replay_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/trace/testing/trace_builder.h"
#include "proto/errors.h"

namespace legoai::sim {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr CoreSpeed kFast{v1::FLOAT32, 4e9, 4e9, 1e9}, kSlowBfloat16{v1::BFLOAT16, 1e8, 4e9, 1e9};

TEST(ReplayPlanTest, OperatorsTakeTheirArithmeticOrTheirMemory) {
  graph::TraceBuilder b;
  auto wide = b.Input("wide", {256, 256}), thin = b.Input("thin", {1, 1000});
  b.Op("aten::mm", {wide, wide}, {b.New(v1::FLOAT32, {256, 256})});
  b.Op("aten::relu", {thin}, {b.New(v1::FLOAT32, {1, 1000})});
  const auto seconds = PredictSeconds(b.trace(), kFast);
  ASSERT_TRUE(seconds.ok()) << seconds.status();
  ASSERT_EQ(seconds->size(), 2u);
  EXPECT_NEAR((*seconds)[0], 2.0 * 256 * 256 * 256 / 4e9, 1e-9);
  EXPECT_NEAR((*seconds)[1], 2 * 4000 / 1e9, 1e-12);
  EXPECT_EQ(*ProductDtype({{&b.trace(), 0, 0}}), v1::FLOAT32);
}

TEST(ReplayPlanTest, ProductsInBfloat16GoAtItsSpeed) {
  graph::TraceBuilder b;
  auto a = b.New(v1::BFLOAT16, {64, 64});
  b.Op("aten::mm", {a, a}, {b.New(v1::BFLOAT16, {64, 64})});
  EXPECT_EQ(*ProductDtype({{&b.trace(), 0, 0}}), v1::BFLOAT16);
  EXPECT_NEAR((*PredictSeconds(b.trace(), kSlowBfloat16))[0], 2.0 * 64 * 64 * 64 / 1e8, 1e-9);
}

TEST(ReplayPlanTest, WhatIsSlowIsReplayedLessOftenAndWhatTakesHoursIsRefusedWithItsCause) {
  EXPECT_EQ(PlanReplays(1, kFast)->all(), Replays().all());
  for (double seconds : {20.0, 30.0, 50.0, 100.0, 290.0}) {
    const auto replays = PlanReplays(seconds, kSlowBfloat16);
    ASSERT_TRUE(replays.ok()) << replays.status();
    EXPECT_GE(replays->warm_up, 1);
    EXPECT_GE(replays->timed, 1);
    EXPECT_TRUE(replays->all() == 2 || seconds * replays->all() <= kReplaySeconds) << seconds;
  }
  const auto violation = GetFieldViolation(PlanReplays(7200, kSlowBfloat16).status());
  ASSERT_TRUE(violation);
  EXPECT_EQ(violation->field(), "--benchmark");
  EXPECT_THAT(violation->remedy(), HasSubstr("7200 s each (bfloat16 without fast kernels on this CPU: about 40 times slower"));
  EXPECT_THAT(violation->remedy(), HasSubstr("choose training.mixed_precision_param=float32"));
  EXPECT_THAT(GetFieldViolation(PlanReplays(7200, kFast).status())->remedy(), Not(HasSubstr("float32")));
}

TEST(ReplayPlanTest, TheTextNamesThePrecisionWhereItIsSlow) {
  EXPECT_EQ(ReplayText({}, kFast), "replaying the step 7 times");
  const std::string slow = ReplayText({.warm_up = 1, .timed = 1}, kSlowBfloat16);
  EXPECT_THAT(slow, HasSubstr("2 times instead of 7, as it is slow"));
  EXPECT_THAT(slow, HasSubstr("bfloat16 without fast kernels on this CPU: about 40 times slower than float32"));
  EXPECT_THAT(slow, HasSubstr("training.mixed_precision_param=float32"));
}

// Two stages of two instructions, replayed thrice: 9 s and 3 s each time.
TEST(ReplayPlanTest, WhatRemainsIsPredictedAtFirstAndThenWhatItTook) {
  const PredictedStages stages = {{8, 1}, {1, 2}};
  const Replays replays{.warm_up = 1, .timed = 2};
  const auto at = [&](int64_t done, double elapsed) { return ReplayProgress("text", replays, stages, done, elapsed); };
  EXPECT_EQ(at(0, 0).total(), 12);
  EXPECT_EQ(at(0, 0).phase(), "text");
  EXPECT_NEAR(at(0, 0).remaining_seconds(), 36, 1e-9);
  EXPECT_NEAR(at(0, 6).remaining_seconds(), 30, 1e-9);
  EXPECT_EQ(at(0, 60).remaining_seconds(), 0);
  EXPECT_NEAR(at(2, 18).remaining_seconds(), 54, 1e-9);  // a quarter, in twice the time
  EXPECT_NEAR(at(6, 27).remaining_seconds(), 9, 1e-9);   // all of the first stage
  EXPECT_NEAR(at(7, 28).remaining_seconds(), 8, 1e-9);
  EXPECT_EQ(at(12, 40).remaining_seconds(), 0);
}

}  // namespace
}  // namespace legoai::sim
