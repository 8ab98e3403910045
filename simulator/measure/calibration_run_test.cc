// On this machine's CPU, which is a device like another to what measures.
#include "simulator/measure/calibration_run.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <set>
#include <thread>

namespace legoai::sim {
namespace {

std::unique_ptr<DeviceBench> CpuBench() {
  at::set_num_threads(1);  // threads that wait for each other measure a busy machine
  auto bench = DeviceBench::Create(c10::kCPU, comm::MakeHostTimer(), /*quick=*/true);
  EXPECT_TRUE(bench.ok()) << bench.status();
  return *std::move(bench);
}

absl::Status Measure(const std::vector<GridPoint>& points, double seconds, v1::Calibration* calibration,
                     int64_t memory_bytes = int64_t{1} << 30, const CalibrationProgress& progress = {}) {
  const auto bench = CpuBench();
  return RunCalibration(*bench, points, comm::MakeThreadStreams,
                        {.seconds = seconds, .quick = true, .memory_bytes = memory_bytes}, progress, calibration);
}

GridPoint Wrong(int64_t rows) {  // 3 columns by `rows` rows
  GridPoint point{.shape = {{"rows", rows}}};
  point.call = {"aten::mm", "", {TensorSpec{.sizes = {2, 3}}, TensorSpec{.sizes = {rows, 5}}}};
  return point;
}

TEST(SpreadTest, LiesBetweenNeighbours) {
  const Spread spread = SpreadOf({5, 1, 4, 2, 3});
  EXPECT_DOUBLE_EQ(spread.median, 3);
  EXPECT_DOUBLE_EQ(spread.p10, 1.4);
  EXPECT_DOUBLE_EQ(spread.p90, 4.6);
  EXPECT_EQ(spread.runs, 5);
  EXPECT_DOUBLE_EQ(SpreadOf({7}).p90, 7);
}

TEST(DeviceBenchTest, RunsWithinItsLimits) {
  const auto bench = CpuBench();
  int calls = 0;
  const auto sleep = [&] {
    ++calls;
    std::this_thread::sleep_for(std::chrono::milliseconds(3));
    return absl::OkStatus();
  };
  auto spread = bench->Time(sleep, {.least = 5, .most = 7, .seconds = 10});
  ASSERT_TRUE(spread.ok()) << spread.status();
  EXPECT_EQ(spread->runs, 7);
  EXPECT_EQ(calls, 9) << "two to warm up";
  EXPECT_GE(spread->p10, 3e-3);
  EXPECT_GE(spread->p90, spread->median);
  spread = bench->Time(sleep, {.least = 2, .most = 1000, .seconds = 0.02});
  ASSERT_TRUE(spread.ok());
  EXPECT_GE(spread->runs, 2);
  EXPECT_LE(spread->runs, 7);
  EXPECT_FALSE(bench->Time([] { return absl::InternalError("no"); }).ok());
}

TEST(CalibrationRunTest, TheQuickGridIsMeasuredWhole) {
  v1::Calibration calibration;
  const auto points = OperatorGrid(GridSize::kQuick);
  int told = 0;
  const absl::Status status =
      Measure(points, 300, &calibration, int64_t{1} << 30, [&](const auto&, const std::string&) { ++told; });
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(calibration.points_planned(), std::ssize(points));
  EXPECT_EQ(calibration.points_not_reached(), 0);
  EXPECT_EQ(calibration.operators_size(), std::ssize(points));
  for (const auto& left_out : calibration.left_out()) ADD_FAILURE() << left_out.point() << ": " << left_out.why();
  EXPECT_GE(told, std::ssize(points));
  EXPECT_GT(calibration.provenance().seconds(), 0);
  EXPECT_TRUE(calibration.provenance().quick());
  std::set<std::string> classes;
  for (const auto& measured : calibration.operators()) {
    classes.insert(measured.op_class());
    EXPECT_GT(measured.seconds(), 0) << measured.operator_();
    EXPECT_LE(measured.seconds_p10(), measured.seconds());
    EXPECT_GE(measured.seconds_p90(), measured.seconds());
    EXPECT_GE(measured.runs(), 5);
  }
  EXPECT_EQ(classes, (std::set<std::string>{"matmul", "attention", "elementwise", "reduction", "copy", "optimizer"}));
  EXPECT_GT(calibration.kernel_launch_seconds(), 0);
  EXPECT_LT(calibration.kernel_launch_seconds(), 1e-3);
  EXPECT_GT(calibration.eager_dispatch_seconds(), 0);
  EXPECT_GE(calibration.host_dispatch_size(), 5);
  EXPECT_EQ(calibration.memory_size(), 3);
  for (const auto& memory : calibration.memory()) EXPECT_GT(memory.bytes_per_second(), 1e8) << memory.name();
  EXPECT_EQ(calibration.sustained_size(), 2);
  for (const auto& load : calibration.sustained()) EXPECT_GT(load.last_flops_per_second(), 1e6);
}

TEST(CalibrationRunTest, WhatTheTimeDoesNotReachIsCounted) {
  v1::Calibration calibration;
  auto points = OperatorGrid(GridSize::kQuick);
  const absl::Status status = Measure(points, 1e-3, &calibration);  // over when the first figures are there
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(calibration.operators_size(), 0);
  EXPECT_EQ(calibration.points_not_reached(), std::ssize(points));
  EXPECT_GT(calibration.kernel_launch_seconds(), 0);
}

TEST(CalibrationRunTest, WhatHasNoRoomOrFailsIsLeftOutByName) {
  v1::Calibration calibration;
  auto points = OperatorGrid(GridSize::kQuick);
  points.resize(3);
  points.insert(points.begin() + 1, Wrong(7));
  ASSERT_TRUE(Measure(points, 300, &calibration).ok());
  EXPECT_EQ(calibration.operators_size(), 3);
  ASSERT_EQ(calibration.left_out_size(), 1);
  EXPECT_EQ(calibration.left_out(0).point(), "aten::mm float32 rows=7");
  EXPECT_FALSE(calibration.left_out(0).why().empty());
  v1::Calibration small;
  ASSERT_TRUE(Measure(points, 300, &small, /*memory_bytes=*/8).ok());
  EXPECT_EQ(small.operators_size(), 0);
  ASSERT_EQ(small.left_out_size(), 4);
  EXPECT_NE(small.left_out(0).why().find("and there are 8"), std::string::npos) << small.left_out(0).why();
  EXPECT_EQ(small.points_not_reached(), 0);
}

// A card that has failed fails whatever follows: what was measured before is kept.
TEST(CalibrationRunTest, ADeviceThatFailsEndsIt) {
  auto points = OperatorGrid(GridSize::kQuick);
  points.resize(2);
  for (int64_t rows = 10; rows < 30; ++rows) points.push_back(Wrong(rows));
  v1::Calibration calibration;
  const absl::Status status = Measure(points, 300, &calibration);
  EXPECT_FALSE(status.ok());
  EXPECT_NE(status.message().find("8 points that failed"), std::string::npos) << status;
  EXPECT_EQ(calibration.operators_size(), 2);
  EXPECT_EQ(calibration.left_out_size(), 8);
  EXPECT_EQ(calibration.points_not_reached(), std::ssize(points) - 9);
}

}  // namespace
}  // namespace legoai::sim
