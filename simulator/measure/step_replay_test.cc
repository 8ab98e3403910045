#include "simulator/measure/step_replay.h"

#include <gtest/gtest.h>

#include <map>
#include <numeric>
#include <utility>

#include "core/hardware/catalog.h"
#include "core/trace/testing/trace_builder.h"
#include "simulator/cost/compute_cost.h"

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

TEST(StepReplayTest, SaysHowFarItIs) {
  graph::TraceBuilder b;
  auto a = b.Input("a", {8, 8});
  for (int i = 0; i < 3; ++i) b.Op("aten::mm", {a, a}, {b.New(v1::FLOAT32, {8, 8})});
  b.Op("aten::t", {a}, {b.View(b.StorageOf(a), v1::FLOAT32, {8, 8}, {1, 8})});
  std::atomic<int64_t> done = 100;
  const Replays replays{.warm_up = 1, .timed = 3};
  auto seconds = ReplayStep(b.trace(), 0, replays, &done);
  ASSERT_TRUE(seconds.ok()) << seconds.status();
  EXPECT_EQ(done, 100 + 4 * 4);
  EXPECT_GT((*seconds)[2], 0);
}

TEST(StepReplayTest, TypicalSecondsAddUpToATypicalRun) {
  // Ten operators of one second, of which another takes six in each run.
  std::vector<std::vector<double>> runs(5, std::vector<double>(10, 1));
  for (size_t run = 0; run < runs.size(); ++run) runs[run][2 * run] = 6;
  auto sum = [](const std::vector<double>& seconds) { return std::accumulate(seconds.begin(), seconds.end(), 0.0); };
  EXPECT_NEAR(sum(TypicalSeconds(runs)), 15, 1e-9);
  // What runs at the ends are like does not matter.
  for (double& seconds : runs[3]) seconds *= 100;
  for (double& seconds : runs[1]) seconds /= 100;
  EXPECT_NEAR(sum(TypicalSeconds(runs)), 15, 1e-9);
  EXPECT_NEAR(TypicalSeconds(runs)[0], (6 + 1 + 1) / 3.0, 1e-9);
  EXPECT_NEAR(TypicalSeconds(runs)[1], 1, 1e-9);
  EXPECT_EQ(TypicalSeconds({{1, 2}}), (std::vector<double>{1, 2}));
}

TEST(StepReplayTest, AnOperatorThatFailsIsNamed) {
  graph::TraceBuilder b;
  auto a = b.Input("a", {2, 3});
  b.Op("aten::mm", {a, a}, {b.New(v1::FLOAT32, {2, 3})});
  auto seconds = ReplayStep(b.trace(), 0);
  EXPECT_EQ(seconds.status().code(), absl::StatusCode::kInternal);
  EXPECT_NE(seconds.status().message().find("aten::mm"), std::string::npos) << seconds.status();
}

// Peaks that no CPU comes near, and a bandwidth below any's: the fractions say which of the two a class is held against.
TEST(StepEfficiency, EveryClassIsHeldAgainstWhatBoundsIt) {
  v1::Device device = *FindDevice("cpu");
  device.clear_peak_flops();
  for (const v1::DType dtype : {v1::FLOAT32, v1::BFLOAT16}) {
    auto* peak = device.add_peak_flops();
    peak->set_dtype(dtype);
    peak->set_flops_per_second(1e18);
  }
  device.set_memory_bandwidth_bytes_per_second(1e6);
  ASSERT_EQ(MeasureEfficiencies(2, "by a test", &device), absl::OkStatus());
  std::map<std::pair<std::string, v1::DType>, double> fractions;
  for (const auto& efficiency : device.efficiencies()) {
    EXPECT_EQ(efficiency.source(), "by a test");
    EXPECT_TRUE(fractions.insert({{efficiency.op_class(), efficiency.dtype()}, efficiency.fraction()}).second);
  }
  // At 1 MB/s the traffic of everything takes longer than it really does, products' too.
  for (const char* op_class : {"matmul", "attention", "elementwise", "reduction", "copy", "optimizer"}) {
    EXPECT_EQ((fractions[{op_class, v1::DTYPE_UNSPECIFIED}]), 1) << op_class;
    if (std::string(op_class) != "optimizer") {
      EXPECT_EQ((fractions[{op_class, v1::BFLOAT16}]), 1) << op_class;
    }
  }
  EXPECT_EQ(fractions.size(), 11u) << "parameters are updated in fp32 alone";

  device.set_memory_bandwidth_bytes_per_second(1e18);
  ASSERT_EQ(MeasureEfficiencies(2, "by a test", &device), absl::OkStatus());
  for (const auto& efficiency : device.efficiencies()) {
    EXPECT_GT(efficiency.fraction(), 0) << efficiency.op_class();
    EXPECT_LT(efficiency.fraction(), 1e-3) << efficiency.op_class();
  }
  EXPECT_TRUE(RooflineModel::Create(device).ok());
}

}  // namespace
}  // namespace legoai::sim
