#include "core/hardware/running_cost.h"

#include <gtest/gtest.h>

namespace legoai::sim {
namespace {

// 16 devices, a million tokens in ten seconds: 10,000 seconds for a billion, on each of them.
TEST(RunningCost, CountsDevicesHoursAndMoney) {
  v1::Cluster cluster;
  cluster.set_devices_per_node(8);
  cluster.set_nodes(2);
  v1::RunningCost cost = RunningCostOf(cluster, 1e6, 10);
  EXPECT_DOUBLE_EQ(cost.tokens_per_day(), 8.64e9);
  EXPECT_DOUBLE_EQ(cost.gpu_hours_per_billion_tokens(), 16 * 10000 / 3600.0);
  EXPECT_EQ(cost.price_per_billion_tokens(), 0) << "which is not known";
  cluster.set_price_per_gpu_hour(3.6);
  EXPECT_DOUBLE_EQ(RunningCostOf(cluster, 1e6, 10).price_per_billion_tokens(), 160);
}

TEST(RunningCost, OfNoStepThereIsNone) {
  v1::Cluster cluster;
  cluster.set_devices_per_node(8);
  cluster.set_nodes(1);
  EXPECT_EQ(RunningCostOf(cluster, 1e6, 0).ByteSizeLong(), 0u);
  EXPECT_EQ(RunningCostOf(cluster, 0, 1).ByteSizeLong(), 0u);
}

}  // namespace
}  // namespace legoai::sim
