#include "simulator/symbolic/link_load.h"

#include <gtest/gtest.h>

#include <random>
#include <string>

#include "core/hardware/catalog.h"

namespace legoai::sim {
namespace {

// Without latencies a ring takes what its narrowest link takes: the cost model of collectives is the oracle.
TEST(LinkLoad, TheNarrowestLinkGivesTheTimeOfTheRing) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  const auto power = [&](int most) { return int64_t{1} << std::uniform_int_distribution<>(0, most)(random); };
  for (int round = 0; round < 2000; ++round) {
    v1::Cluster cluster = *ParseCluster(round % 3 == 0 ? "mi300x:8x64" : "h100-sxm-80:8x64");  // a mesh, or a switch
    cluster.mutable_device()->set_kernel_launch_seconds(0);
    if (round % 2 == 0) {  // racks of four nodes in between
      v1::Tier* const outer = cluster.add_tiers();
      *outer = cluster.tiers(1);
      cluster.mutable_tiers(1)->set_group_size(32);
    }
    for (auto& tier : *cluster.mutable_tiers()) {
      tier.mutable_link()->set_latency_seconds(0);
      tier.mutable_link()->set_bandwidth_bytes_per_second(std::uniform_real_distribution<>(1e9, 1e12)(random));
    }
    mesh::RankLine line{0, power(6), 2 * power(2)};
    line.first = line.stride * line.size * std::uniform_int_distribution<int64_t>(0, 512 / line.stride / line.size - 1)(random);
    const double bytes = 1e12, passed = bytes * static_cast<double>(line.size - 1) / static_cast<double>(line.size);
    const LinkLoad load = NarrowestLink(cluster, line, passed);
    ASSERT_GE(load.tier, 0);
    const double seconds = load.bytes / load.bytes_per_second;
    const auto expected = CollectiveCostModel(cluster).Time(Effect::kAllGather, static_cast<int64_t>(bytes), line);
    ASSERT_TRUE(expected.ok()) << expected.status();
    EXPECT_NEAR(seconds / *expected, 1, 1e-9) << line.first << " + " << line.stride << " * " << line.size;
  }
}

TEST(LinkLoad, ALoneRankSendsNothing) { EXPECT_EQ(NarrowestLink(*ParseCluster("h100-sxm-80:8x2"), {0, 1, 1}, 1e9).tier, -1); }

// Eight ranks of a node share its way out: an eighth of the ring's bytes goes through each adapter.
TEST(LinkLoad, ANodesRanksShareItsWayOut) {
  v1::Cluster cluster = *ParseCluster("h100-sxm-80:8x2");
  cluster.mutable_tiers(1)->mutable_link()->set_bandwidth_bytes_per_second(1e9);
  const LinkLoad all = NarrowestLink(cluster, {0, 1, 16}, 8e9), across = NarrowestLink(cluster, {0, 8, 2}, 8e9);
  EXPECT_EQ(all.tier, 1);
  EXPECT_EQ(all.bytes, 1e9);
  EXPECT_EQ(across.tier, 1);
  EXPECT_EQ(across.bytes, 8e9);
}

}  // namespace
}  // namespace legoai::sim
