#include "server/cli/whatif/sensitivities.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "core/hardware/catalog.h"

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
  const auto result = ReadSensitivities(*requests, estimates);
  ASSERT_TRUE(result.ok()) << result.status();
  ASSERT_GE(result->rows.size(), 8u);
  EXPECT_EQ(result->rows[0].figure, "compute.peak");
  EXPECT_NEAR(result->rows[0].less_seconds, 1 / 0.8 + 0.5, 1e-9);
  EXPECT_NEAR(result->rows[0].more_seconds, 1 / 1.2 + 0.5, 1e-9);
  EXPECT_EQ(result->rows[1].figure, "link.nvlink4.bandwidth");
  EXPECT_NEAR(result->rows[1].less_seconds, 1 + 0.5 / 0.8, 1e-9);
  for (size_t i = 2; i < result->rows.size(); ++i) {
    EXPECT_DOUBLE_EQ(result->rows[i].less_seconds, 1.5) << result->rows[i].figure;
    EXPECT_NE(result->rows[i].figure, "memory");
  }
  const std::string text = SensitivitiesText(*result);
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

}  // namespace
}  // namespace legoai::cli
