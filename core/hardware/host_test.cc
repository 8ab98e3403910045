#include "core/hardware/host.h"

#include <gtest/gtest.h>

namespace legoai::sim {
namespace {

TEST(HostTest, HasCoresAndAProcessor) {
  EXPECT_GE(HostPhysicalCores(), 1);
  EXPECT_FALSE(HostProcessor().empty());
}

}  // namespace
}  // namespace legoai::sim
