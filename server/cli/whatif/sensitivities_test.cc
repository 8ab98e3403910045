#include "server/cli/whatif/sensitivities.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "core/hardware/catalog.h"
#include "proto/testing/assert_ok.h"

namespace legoai::cli {
namespace {

v1::SimRequest Request() {
  v1::SimRequest request;
  *request.mutable_cluster() = *sim::ParseCluster("h100-sxm-80:8x2");
  return request;
}

// A step whose time follows from the figures by a formula: 1 s of compute, 0.5 s on the node's links, none on others.
v1::Estimate EstimateOf(const v1::SimRequest& request, const v1::Cluster& now) {
  v1::Estimate estimate;
  estimate.set_step_time_seconds(
      now.device().peak_flops(0).flops_per_second() / request.cluster().device().peak_flops(0).flops_per_second() +
      0.5 * now.tiers(0).link().bandwidth_bytes_per_second() / request.cluster().tiers(0).link().bandwidth_bytes_per_second());
  auto* stage = estimate.add_stages();
  stage->set_peak_allocated_bytes(int64_t{60} << 30);
  stage->set_reserve_bytes(int64_t{2} << 30);
  stage->set_capacity_bytes(int64_t{80} << 30);
  return estimate;
}

TEST(SensitivitiesTest, TheLargestEffectComesFirstAndWhatHasNoneIsNone) {
  const v1::SimRequest request = Request();
  const auto requests = RequestsForSensitivities(request);
  ASSERT_TRUE(requests.ok()) << requests.status();
  std::vector<absl::StatusOr<v1::Estimate>> estimates;
  for (const v1::SimRequest& one : requests->requests) estimates.push_back(EstimateOf(one, request.cluster()));
  ASSERT_OK_AND_ASSIGN(const auto result, ReadSensitivities(*requests, estimates));
  ASSERT_GE(result.rows.size(), 8u);
  EXPECT_EQ(result.rows[0].figure, "compute.peak");
  EXPECT_NEAR(result.rows[0].less_seconds, 1 / 0.8 + 0.5, 1e-9);
  EXPECT_NEAR(result.rows[0].more_seconds, 1 / 1.2 + 0.5, 1e-9);
  EXPECT_EQ(result.rows[1].figure, "link.nvlink4.bandwidth");
  EXPECT_NEAR(result.rows[1].less_seconds, 1 + 0.5 / 0.8, 1e-9);
  for (size_t i = 2; i < result.rows.size(); ++i) {
    EXPECT_DOUBLE_EQ(result.rows[i].less_seconds, 1.5) << result.rows[i].figure;
    EXPECT_NE(result.rows[i].figure, "memory");
  }
  const std::string text = SensitivitiesText(result);
  EXPECT_NE(text.find("62.0 GiB a device are needed, of 80.0 GiB"), std::string::npos) << text;
  EXPECT_NE(text.find("+16.7 %"), std::string::npos) << text;
  EXPECT_NE(text.find("-11.1 %"), std::string::npos) << text;
}

// 20 % more than 0.9 is no efficiency.
TEST(SensitivitiesTest, AFigureThatCannotBeSoIsLeftOpen) {
  v1::SimRequest request = Request();
  for (auto& efficiency : *request.mutable_cluster()->mutable_device()->mutable_efficiencies()) efficiency.set_fraction(0.9);
  const auto requests = RequestsForSensitivities(request);
  ASSERT_TRUE(requests.ok());
  std::vector<absl::StatusOr<v1::Estimate>> estimates;
  for (const v1::SimRequest& one : requests->requests) estimates.push_back(EstimateOf(one, request.cluster()));
  const auto result = ReadSensitivities(*requests, estimates);
  const auto row = std::find_if(result->rows.begin(), result->rows.end(),
                                [](const Sensitivity& one) { return one.figure == "matmul.efficiency"; });
  ASSERT_NE(row, result->rows.end());
  EXPECT_EQ(row->more_seconds, 0);
  EXPECT_GT(row->less_seconds, 0);
  const Tree tree = SensitivitiesTree(*result);
  for (const Tree& one : tree["sensitivities"]) {
    EXPECT_EQ(one.contains("more_step_time_seconds"), !one["figure"].get<std::string>().ends_with(".efficiency")) << one;
  }
}

TEST(SensitivitiesTest, AFailedSimulationIsTheError) {
  const auto requests = RequestsForSensitivities(Request());
  std::vector<absl::StatusOr<v1::Estimate>> estimates(requests->requests.size(), absl::InternalError("it crashed"));
  EXPECT_EQ(ReadSensitivities(*requests, estimates).status().message(), "it crashed");
}

v1::Cluster H100(const std::string& sizes = "8x2") {
  auto cluster = sim::ParseCluster("h100-sxm-80:" + sizes);
  EXPECT_TRUE(cluster.ok()) << cluster.status();
  return *cluster;
}

std::string Refusal(const std::string& name, const std::string& value) {
  v1::Cluster cluster = H100();
  return std::string(SetClusterFigure(name, value, &cluster).message());
}

TEST(ClusterFiguresTest, EachFigureIsMultipliedWhereItStands) {
  const v1::Cluster before = H100();
  for (const std::string& figure : ClusterFigures(before)) {
    EXPECT_TRUE(IsClusterFigure(figure)) << figure;
    v1::Cluster after = before;
    ASSERT_TRUE(SetClusterFigure(figure, "0.5x", &after).ok()) << figure;
    EXPECT_NE(after.SerializeAsString(), before.SerializeAsString()) << figure;
    ASSERT_TRUE(SetClusterFigure(figure, "2x", &after).ok()) << figure;
    EXPECT_EQ(after.SerializeAsString(), before.SerializeAsString()) << figure;
  }
}

TEST(ClusterFiguresTest, ValuesAreReadWithTheirUnits) {
  v1::Cluster cluster = H100();
  ASSERT_TRUE(SetClusterFigure("memory", "120GiB", &cluster).ok());
  EXPECT_EQ(cluster.device().memory_bytes(), int64_t{120} << 30);
  ASSERT_TRUE(SetClusterFigure("memory.bandwidth", "4.8TB/s", &cluster).ok());
  EXPECT_DOUBLE_EQ(cluster.device().memory_bandwidth_bytes_per_second(), 4.8e12);
  ASSERT_TRUE(SetClusterFigure("link.node.bandwidth", "900GB/s", &cluster).ok());
  EXPECT_DOUBLE_EQ(cluster.tiers(0).link().bandwidth_bytes_per_second(), 900e9);
  ASSERT_TRUE(SetClusterFigure("link." + cluster.tiers(1).link().type() + ".latency", "5us", &cluster).ok());
  EXPECT_DOUBLE_EQ(cluster.tiers(1).link().latency_seconds(), 5e-6);
  ASSERT_TRUE(SetClusterFigure("matmul.efficiency", "0.7", &cluster).ok());
  for (const auto& efficiency : cluster.device().efficiencies()) {
    EXPECT_TRUE(efficiency.op_class() != "matmul" || efficiency.fraction() == 0.7) << efficiency.ShortDebugString();
  }
  EXPECT_EQ(*ClusterFigureText(cluster, "link.node.bandwidth"), "900 GB/s");
  EXPECT_EQ(*ClusterFigureText(cluster, "memory"), "120 GiB");
}

TEST(ClusterFiguresTest, WhatCannotBeIsRefusedByName) {
  for (const char* value : {"", "x", "-1x", "0x", "nan", "infx", "1e400", "12 parsecs", "0x10"}) {
    EXPECT_NE(Refusal("memory.bandwidth", value).find("memory.bandwidth"), std::string::npos) << value;
    EXPECT_NE(Refusal("link.node.latency", std::string(value) == "0x" ? "-0.1" : value), "") << value;
  }
  EXPECT_NE(Refusal("matmul.efficiency", "1.2").find("up to 1"), std::string::npos);
  EXPECT_NE(Refusal("compute.peak", "1e15").find("1.5x"), std::string::npos);
  EXPECT_NE(Refusal("link.nvlink9.bandwidth", "2x").find("link.nvlink4.bandwidth"), std::string::npos);
  EXPECT_FALSE(ClusterFigureText(H100("8"), "link.cluster.bandwidth").ok());
  EXPECT_FALSE(IsClusterFigure("training.steps"));
}

TEST(ClusterFiguresTest, AClusterIsSizedByWholeNodesOrAPartOfOne) {
  EXPECT_EQ(*ResizedCluster("h100-sxm-80:8x2", 64), "h100-sxm-80:8x8");
  EXPECT_EQ(*ResizedCluster("h100-sxm-80:8", 16), "h100-sxm-80:8x2");
  EXPECT_EQ(*ResizedCluster("h100-sxm-80:8x2@roce-400", 4), "h100-sxm-80:4x1");
  EXPECT_EQ(*ResizedCluster("h100-sxm-80:8x2@roce-400", 32), "h100-sxm-80:8x4@roce-400");
  for (int64_t devices : {4, 8, 64}) {
    ASSERT_OK_AND_ASSIGN(const auto cluster, sim::ParseCluster(*ResizedCluster("h100-sxm-80:8x2", devices)));
    EXPECT_EQ(cluster.devices_per_node() * cluster.nodes(), devices);
  }
  EXPECT_NE(ResizedCluster("h100-sxm-80:8x2", 12).status().message().find("whole nodes of 8"), std::string::npos);
  for (const char* text : {"mine.txtpb", "", "h100-sxm-80", "h100-sxm-80:", "h100-sxm-80:axb", ":@"}) {
    EXPECT_FALSE(ResizedCluster(text, 8).ok()) << text;
  }
}

}  // namespace
}  // namespace legoai::cli
