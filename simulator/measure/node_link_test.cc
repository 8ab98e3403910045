#include "simulator/measure/host_measurement.h"

#include <gtest/gtest.h>

namespace legoai::sim {
namespace {

// Between what a wire could do and what a broken measurement would give.
TEST(NodeLinkTest, IsPlausible) {
  auto link = MeasureNodeLink();
  ASSERT_TRUE(link.ok()) << link.status();
  EXPECT_GT(link->latency_seconds(), 1e-6);
  EXPECT_LT(link->latency_seconds(), 1);
  EXPECT_GT(link->bandwidth_bytes_per_second(), 1e6);
  EXPECT_LT(link->bandwidth_bytes_per_second(), 1e12);
  EXPECT_EQ(link->efficiency(), 1);
  EXPECT_EQ(link->sources_size(), 1);
}

}  // namespace
}  // namespace legoai::sim
