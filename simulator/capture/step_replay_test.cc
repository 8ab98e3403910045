#include "simulator/capture/step_replay.h"

#include <gtest/gtest.h>

#include "worker/graph/trace_builder.h"

namespace legoai::sim {
namespace {

TEST(StepReplayTest, TimesEveryOperatorWhereItStands) {
  graph::TraceBuilder b;
  auto large = b.Input("large", {512, 512}), small = b.Input("small", {4, 4});
  b.Op("aten::mm", {large, large}, {b.New(v1::FLOAT32, {512, 512})});
  b.Op("aten::mm", {small, small}, {b.New(v1::FLOAT32, {4, 4})});
  b.Op("aten::mm", {large, large}, {b.New(v1::FLOAT32, {512, 512})});
  auto seconds = ReplayStep(b.trace(), 0);
  ASSERT_TRUE(seconds.ok()) << seconds.status();
  ASSERT_EQ(seconds->size(), 3u);
  EXPECT_GT((*seconds)[1], 0);
  EXPECT_GT((*seconds)[0], (*seconds)[1]);  // two million times the arithmetic
  EXPECT_GT((*seconds)[2], (*seconds)[1]);
}

TEST(StepReplayTest, AnOperatorThatFailsIsNamed) {
  graph::TraceBuilder b;
  auto a = b.Input("a", {2, 3});
  b.Op("aten::mm", {a, a}, {b.New(v1::FLOAT32, {2, 3})});
  auto seconds = ReplayStep(b.trace(), 0);
  EXPECT_EQ(seconds.status().code(), absl::StatusCode::kInternal);
  EXPECT_NE(seconds.status().message().find("aten::mm"), std::string::npos) << seconds.status();
}

}  // namespace
}  // namespace legoai::sim
