#include "simulator/hardware/loopback.h"

#include <gtest/gtest.h>

namespace legoai::sim {
namespace {

TEST(LoopbackTest, IsALinkThatACollectiveModelCanUse) {
  auto link = MeasureLoopback();
  ASSERT_TRUE(link.ok()) << link.status();
  EXPECT_GT(link->bandwidth_bytes_per_second(), 0);
  EXPECT_GT(link->latency_seconds(), 0);
  EXPECT_EQ(link->efficiency(), 1);
  EXPECT_FALSE(link->sources().empty());
}

}  // namespace
}  // namespace legoai::sim
