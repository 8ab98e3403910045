#include "simulator/cost/collective_cost.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "absl/strings/str_cat.h"
#include "core/trace/testing/trace_builder.h"

namespace legoai::sim {
namespace {

constexpr double kLatencyInside = 2e-6, kLatencyBetween = 7e-6, kInside = 1e9, kBetween = 2e8;

v1::Cluster TestCluster(int64_t per_node, int64_t nodes, v1::DeviceKind kind = v1::CUDA) {
  v1::Cluster cluster;
  cluster.set_devices_per_node(per_node);
  cluster.set_nodes(nodes);
  cluster.mutable_device()->set_kind(kind);
  cluster.mutable_device()->set_memory_bandwidth_bytes_per_second(1e10);
  auto add = [&](int64_t size, double latency, double bandwidth) {
    auto* tier = cluster.add_tiers();
    tier->set_group_size(size);
    tier->mutable_link()->set_latency_seconds(latency);
    tier->mutable_link()->set_bandwidth_bytes_per_second(2 * bandwidth);
    tier->mutable_link()->set_efficiency(0.5);
  };
  add(per_node, kLatencyInside, kInside);
  add(per_node * nodes, kLatencyBetween, kBetween);
  return cluster;
}

mesh::RankLine Range(int64_t first, int64_t count, int64_t stride = 1) { return {first, stride, count}; }

struct Hop {
  double latency, bandwidth;
};

// Ring all-gather, block by block: block b starts at rank b and passes P - 1 hops; a link sends one block at a time, in the order
// of arrival; a block arrives a latency after it was sent.
double RingBySteps(const std::vector<Hop>& hops, double block_bytes) {
  size_t ranks = hops.size();
  std::vector<double> arrived(ranks, 0.0), link_free(ranks, 0.0);  // by block; by link from rank i to i + 1
  double end = 0;
  for (size_t step = 0; step + 1 < ranks; ++step) {
    for (size_t block = 0; block < ranks; ++block) {
      size_t link = (block + step) % ranks;
      double start = std::max(arrived[block], link_free[link]);
      link_free[link] = start + block_bytes / hops[link].bandwidth;
      arrived[block] = link_free[link] + hops[link].latency;
      end = std::max(end, arrived[block]);
    }
  }
  return end;
}

// The rings of a group with m ranks in each of N nodes: m rings share the links inside and have an adapter each between.
std::vector<Hop> RingHops(int64_t per_node, int64_t nodes) {
  std::vector<Hop> hops;
  double rings = nodes > 1 ? static_cast<double>(per_node) : 1.0;
  for (int64_t node = 0; node < nodes; ++node) {
    for (int64_t i = 0; i + 1 < per_node; ++i) hops.push_back({kLatencyInside, kInside / rings});
    hops.push_back(nodes > 1 ? Hop{kLatencyBetween, kBetween} : Hop{kLatencyInside, kInside});
  }
  return hops;
}

// What a group of ranks, counted one by one, takes on TestCluster: its ring as the slowest of its hops and of the ways out of its
// nodes, which the rings through a node share.
struct Counted {
  Counted(const std::vector<int64_t>& ranks, int64_t devices_of_node) {
    std::map<int64_t, int64_t> by_node;
    for (int64_t rank : ranks) ++by_node[rank / devices_of_node];
    size = static_cast<double>(ranks.size());
    nodes = static_cast<double>(by_node.size());
    fewest = size;
    for (const auto& [node, count] : by_node) fewest = std::min(fewest, static_cast<double>(count));
  }
  double HopLatencies() const {
    const double inside = size - (nodes > 1 ? nodes : 0);
    return inside * kLatencyInside + (nodes > 1 ? nodes * kLatencyBetween : 0) - (inside > 0 ? kLatencyInside : kLatencyBetween);
  }
  double Bandwidth() const {
    if (nodes == 1) return kInside;
    return size > nodes ? std::min(kInside, fewest * kBetween) : fewest * kBetween;
  }
  double Ring(double bytes) const { return HopLatencies() + (size - 1) / size * bytes / Bandwidth(); }
  double Broadcast(double bytes) const { return HopLatencies() + bytes / Bandwidth(); }

  double size = 0, nodes = 0, fewest = 0;
};

// Every line of small clusters, whose nodes need not hold a multiple of the stride.
TEST(CollectiveCostTest, ALineCostsWhatItsRanksDoCountedOneByOne) {
  constexpr double kBytes = 1000000;
  for (int64_t per_node : {1, 3, 4, 6, 8}) {
    for (int64_t nodes : {1, 2, 5}) {
      const int64_t devices = per_node * nodes;
      const CollectiveCostModel model(TestCluster(per_node, nodes));
      for (int64_t stride = 1; stride <= devices; ++stride) {
        for (int64_t first = 0; first < devices; ++first) {
          for (int64_t size = 2; first + (size - 1) * stride < devices; ++size) {
            const mesh::RankLine line = Range(first, size, stride);
            const Counted counted(line.List(), per_node);
            const std::string where = absl::StrCat(per_node, " x ", nodes, ": ", size, " ranks from ", first, " by ", stride);
            EXPECT_NEAR(*model.Time(Effect::kAllGather, kBytes, line), counted.Ring(kBytes), 1e-12) << where;
            EXPECT_NEAR(*model.Time(Effect::kAllReduce, kBytes, line, AllReduceAlgorithm::kRing), 2 * counted.Ring(kBytes), 1e-12)
                << where;
            EXPECT_NEAR(*model.Time(Effect::kBroadcast, kBytes, line), counted.Broadcast(kBytes), 1e-12) << where;
          }
        }
      }
    }
  }
  EXPECT_FALSE(CollectiveCostModel(TestCluster(4, 2)).Time(Effect::kAllGather, 1, {0, 4, 3}).ok());
}

TEST(CollectiveCostTest, RingEqualsTheStepsOfAUniformRing) {
  CollectiveCostModel model(TestCluster(8, 4));
  for (int64_t ranks : {2, 3, 8}) {
    for (double bytes : {0.0, 1e3, 1e6}) {
      double expected = RingBySteps(RingHops(ranks, 1), bytes / ranks);
      EXPECT_NEAR(*model.Time(Effect::kAllGather, bytes, Range(0, ranks)), expected, 1e-9 + 1e-9 * expected);
      EXPECT_NEAR(*model.Time(Effect::kReduceScatter, bytes, Range(8, ranks)), expected, 1e-9 + 1e-9 * expected);
      EXPECT_NEAR(*model.Time(Effect::kAllReduce, bytes, Range(0, ranks), AllReduceAlgorithm::kRing), 2 * expected,
                  1e-9 + 1e-9 * expected);
    }
  }
  // One rank in each node: all hops between nodes.
  double expected = RingBySteps({4, Hop{kLatencyBetween, kBetween}}, 1e6 / 4);
  EXPECT_NEAR(*model.Time(Effect::kAllGather, 1000000, Range(3, 4, 8)), expected, 1e-9);
}

TEST(CollectiveCostTest, RingOverNodesBoundsTheStepsClosely) {
  for (int64_t per_node : {2, 4, 8}) {
    for (int64_t nodes : {2, 4, 16}) {
      CollectiveCostModel model(TestCluster(per_node, nodes));
      int64_t ranks = per_node * nodes;
      for (double bytes : {0.0, 1e5, 1e7, 1e9}) {
        SCOPED_TRACE(testing::Message() << per_node << "x" << nodes << ", " << bytes);
        double steps = RingBySteps(RingHops(per_node, nodes), bytes / ranks / per_node);
        double predicted = *model.Time(Effect::kAllGather, bytes, Range(0, ranks));
        EXPECT_GE(predicted, steps * (1 - 1e-9));
        EXPECT_LE(predicted, steps * 1.35 + kLatencyBetween);
        if (bytes == 0 || bytes == 1e9) {
          EXPECT_NEAR(predicted, steps, 0.02 * steps);
        }
      }
    }
  }
}

// A pipelined tree all-reduce of one of the two trees: chunks go up through `parent`, are complete at the root, and go down.
// Every directed port of a node (towards the network) carries one chunk at a time.
double TreeBySteps(int64_t nodes, double bytes, double bandwidth, double latency, int chunks) {
  std::vector<double> out_free(nodes, 0.0), in_free(nodes, 0.0);
  double end = 0, part = bytes / 2 / chunks / bandwidth;
  auto parent = [](int64_t node) { return (node - 1) / 2; };
  for (int tree = 0; tree < 2; ++tree) {
    // The second tree numbers the nodes backwards, so that inner nodes of one are leaves of the other.
    auto label = [&](int64_t node) { return tree == 0 ? node : nodes - 1 - node; };
    auto send = [&](int64_t from, int64_t to, double ready) {
      double start = std::max({ready, out_free[label(from)], in_free[label(to)]});
      out_free[label(from)] = in_free[label(to)] = start + part;
      return start + part + latency;
    };
    for (int chunk = 0; chunk < chunks; ++chunk) {
      std::vector<double> ready(nodes, 0.0);
      for (int64_t node = nodes - 1; node > 0; --node)
        ready[parent(node)] = std::max(ready[parent(node)], send(node, parent(node), ready[node]));
      std::vector<double> done(nodes, ready[0]);
      for (int64_t node = 1; node < nodes; ++node) done[node] = send(parent(node), node, done[parent(node)]);
      end = std::max(end, *std::max_element(done.begin(), done.end()));
    }
  }
  return end;
}

TEST(CollectiveCostTest, TreeLatencyEqualsTheHopsOfTheTree) {
  for (int64_t nodes : {2, 4, 8, 16}) {
    CollectiveCostModel model(TestCluster(1, nodes));
    // The longest way up a heap and down again, hop by hop.
    int64_t depth = 0;
    for (int64_t node = 0; node < nodes; ++node) {
      int64_t hops = 0;
      for (int64_t at = node; at > 0; at = (at - 1) / 2) ++hops;
      depth = std::max(depth, hops);
    }
    EXPECT_NEAR(*model.Time(Effect::kAllReduce, 0, Range(0, nodes), AllReduceAlgorithm::kTree),
                2 * static_cast<double>(depth) * kLatencyBetween, 1e-12)
        << nodes;
  }
  CollectiveCostModel model(TestCluster(8, 4));
  EXPECT_NEAR(*model.Time(Effect::kAllReduce, 0, Range(0, 32), AllReduceAlgorithm::kTree),
              2 * 7 * kLatencyInside + 2 * 2 * kLatencyBetween, 1e-12);
}

// The load of the busiest port, counted send by send: no schedule can beat it, and chunk by chunk takes longer.
TEST(CollectiveCostTest, TreeBandwidthEqualsTheLoadOfTheBusiestPort) {
  for (int64_t nodes : {2, 3, 4, 5, 7, 16, 31}) {
    std::map<int64_t, double> sent;
    for (int tree = 0; tree < 2; ++tree) {
      auto label = [&](int64_t node) { return tree == 0 ? node : nodes - 1 - node; };
      for (int64_t node = 1; node < nodes; ++node) {
        sent[label(node)] += 0.5;            // up
        sent[label((node - 1) / 2)] += 0.5;  // down
      }
    }
    double busiest = 0;
    for (auto [node, load] : sent) busiest = std::max(busiest, load);
    CollectiveCostModel model(TestCluster(1, nodes));
    double latency = *model.Time(Effect::kAllReduce, 0, Range(0, nodes), AllReduceAlgorithm::kTree);
    double total = *model.Time(Effect::kAllReduce, 200000000, Range(0, nodes), AllReduceAlgorithm::kTree);
    EXPECT_NEAR((total - latency) * kBetween / 2e8, busiest, 1e-9) << nodes;
    EXPECT_LE(total, TreeBySteps(nodes, 2e8, kBetween, kLatencyBetween, 64) * (1 + 1e-9));
  }
}

TEST(CollectiveCostTest, AllReduceTakesTheFasterAndGlooTheRing) {
  auto ranks = Range(0, 32);
  CollectiveCostModel model(TestCluster(8, 4)), gloo(TestCluster(8, 4, v1::CPU));
  for (int64_t bytes : {int64_t{8}, int64_t{1000000}, int64_t{1000000000}}) {
    double ring = *model.Time(Effect::kAllReduce, bytes, ranks, AllReduceAlgorithm::kRing);
    double tree = *model.Time(Effect::kAllReduce, bytes, ranks, AllReduceAlgorithm::kTree);
    EXPECT_EQ(*model.Time(Effect::kAllReduce, bytes, ranks), std::min(ring, tree));
    EXPECT_EQ(*gloo.Time(Effect::kAllReduce, bytes, ranks), ring);
  }
  EXPECT_LT(*model.Time(Effect::kAllReduce, 8, ranks), *gloo.Time(Effect::kAllReduce, 8, ranks));
}

TEST(CollectiveCostTest, MoreAdaptersJoinNodesFaster) {
  CollectiveCostModel model(TestCluster(8, 4));
  double strided = *model.Time(Effect::kAllGather, 100000000, Range(0, 4, 8));
  double whole = *model.Time(Effect::kAllGather, 100000000, Range(0, 32));
  EXPECT_NEAR(strided, 0.75 * 1e8 / kBetween, 0.001 * strided);
  EXPECT_NEAR(whole, 31.0 / 32 * 1e8 / kInside, 0.01 * whole);  // eight adapters are faster than a link inside
}

TEST(CollectiveCostTest, OtherKinds) {
  CollectiveCostModel model(TestCluster(4, 2));
  double between = kLatencyBetween + 1e6 / kBetween, inside = kLatencyInside + 1e6 / kInside;
  EXPECT_NEAR(*model.Time(Effect::kAllToAll, 8000000, Range(0, 8)), 4 * between + 3 * inside, 1e-12);
  EXPECT_NEAR(*model.Time(Effect::kRotate, 1000000, Range(0, 4)), inside, 1e-12);
  EXPECT_NEAR(*model.Time(Effect::kRotate, 1000000, Range(0, 8)), between, 1e-12) << "all hops at once: the slowest";
  EXPECT_NEAR(*model.Time(Effect::kRotate, 1000000, Range(0, 2, 4)), between, 1e-12);
  EXPECT_NEAR(*model.Time(Effect::kRotate, 1000000, {5, 1, 1}), 2e6 / 1e10, 1e-12);
  EXPECT_NEAR(*model.MessageTime(1000000, 0, 3), inside, 1e-12);
  EXPECT_NEAR(*model.MessageTime(1000000, 3, 4), between, 1e-12);
  EXPECT_NEAR(*model.Time(Effect::kBroadcast, 1000000, Range(0, 4)), 3 * kLatencyInside + 1e6 / kInside, 1e-12);
  EXPECT_NEAR(*model.Time(Effect::kAllGather, 1000000, {5, 1, 1}), 2e6 / 1e10, 1e-12);
  EXPECT_EQ(*model.Time(Effect::kAllReduce, 1000000, {5, 1, 1}), 0);
  EXPECT_FALSE(model.Time(Effect::kAllGather, 1, {0, 8, 2}).ok());
  EXPECT_FALSE(model.MessageTime(1, -1, 2).ok());
  EXPECT_EQ(model.TierOf(0, 1), 0);
  EXPECT_EQ(model.TierOf(0, 4), 1);
  EXPECT_EQ(model.TierOf(3, 3), -1);
  EXPECT_EQ(model.TierOf({0, 1, 4}), 0);
  EXPECT_EQ(model.TierOf({3, 1, 2}), 1);
  EXPECT_EQ(model.TierOf({3, 1, 1}), -1);
}

TEST(ParseCollectiveTest, ReadsOperands) {
  graph::TraceBuilder b;
  int64_t group = b.AddGroup(mesh::Dim::kTp, {0, 2, 2});
  auto big = b.New(v1::BFLOAT16, {8}), small = b.New(v1::BFLOAT16, {4});
  auto parse = [&] { return ParseCollective(graph::InstructionView(b.trace(), b.trace().instructions.back())); };
  b.Op("lego::all_gather_into", {big, small, group}, {}, 1);
  EXPECT_EQ(parse()->bytes, 16);
  EXPECT_EQ(parse()->kind, Effect::kAllGather);
  b.Op("lego::reduce_scatter_into", {small, big, group}, {}, 1);
  EXPECT_EQ(parse()->bytes, 16);
  b.Op("lego::all_reduce_", {big, group, int64_t{0}}, {}, 1);
  EXPECT_EQ(parse()->kind, Effect::kAllReduce);
  b.Op("lego::send", {big, group, int64_t{1}}, {});
  EXPECT_EQ(parse()->peer, 1);
  b.Op("lego::recv", {big, group, int64_t{2}}, {}, 1);
  EXPECT_EQ(parse().status().code(), absl::StatusCode::kInvalidArgument);
  b.Op("lego::all_reduce_", {big, int64_t{7}, int64_t{0}}, {}, 1);
  EXPECT_EQ(parse().status().code(), absl::StatusCode::kInvalidArgument);
  b.Op("aten::mm", {big, big}, {big});
  EXPECT_EQ(parse().status().code(), absl::StatusCode::kNotFound);
}

TEST(CollectiveCostTest, TensorParallelRotatesThroughMemoryWhereNvlinkJoinsAHost) {
  const auto model_of = [](const char* link, v1::DeviceKind kind = v1::CUDA) {
    v1::Cluster cluster = TestCluster(4, 2, kind);
    cluster.mutable_tiers(0)->mutable_link()->set_type(link);
    return CollectiveCostModel(cluster);
  };
  const mesh::Group tp{mesh::Dim::kTp, Range(0, 4)};
  const CollectiveCostModel model = model_of("nvlink4");
  EXPECT_TRUE(model.RotatesThroughMemory(tp));
  const auto hop = [](double bytes) { return kLatencyInside + bytes / kInside; };
  // Behind the hop the copy of what came last: of two times its bytes, at 1e10 bytes a second.
  EXPECT_NEAR(*model.Time(Effect::kRotate, 1'000'000, tp), hop(1e6) + 2e6 / 1e10, 1e-12);
  EXPECT_NEAR(*model.Time(Effect::kRotate, 1'000'000'000, tp), hop(1e9) + 2.0 * (16 << 20) / 1e10, 1e-9);
  EXPECT_EQ(*model.Time(Effect::kAllGather, 1'000'000, tp), *model.Time(Effect::kAllGather, 1'000'000, tp.ranks));
  // Others go through NCCL.
  for (const mesh::Group& group : {mesh::Group{mesh::Dim::kCp, Range(0, 4)}, {mesh::Dim::kTp, Range(0, 8)},
                                   {mesh::Dim::kTp, Range(0, 2, 4)}}) {
    EXPECT_FALSE(model.RotatesThroughMemory(group));
    EXPECT_EQ(*model.Time(Effect::kRotate, 1'000'000, group), *model.Time(Effect::kRotate, 1'000'000, group.ranks));
  }
  for (const char* link : {"pcie5", "xgmi3", "nvlink5-nvl72", "loopback"}) EXPECT_FALSE(model_of(link).RotatesThroughMemory(tp));
  EXPECT_FALSE(model_of("nvlink4", v1::CPU).RotatesThroughMemory(tp));
}

// Eight devices with a link to each of the others: what is sent to one of them passes one link, whatever the group.
TEST(CollectiveCostTest, AMeshHasTheLinksThatAGroupUses) {
  v1::Cluster cluster = TestCluster(8, 4);
  cluster.mutable_tiers(0)->mutable_link()->set_type("xgmi3");
  const CollectiveCostModel model(cluster);
  const double one_link = kInside / 7, bytes = 7e8;
  EXPECT_NEAR(*model.MessageTime(static_cast<int64_t>(bytes), 0, 5), kLatencyInside + bytes / one_link, 1e-9);
  for (const int64_t ranks : {2, 4, 8}) {
    SCOPED_TRACE(ranks);
    const auto parts = static_cast<double>(ranks);
    // Everyone sends its part to each other over a link of its own, all at once.
    EXPECT_NEAR(*model.Time(Effect::kAllGather, static_cast<int64_t>(bytes), Range(0, ranks)),
                (parts - 1) * kLatencyInside + bytes / parts / one_link, 1e-9);
    EXPECT_NEAR(*model.Time(Effect::kAllToAll, static_cast<int64_t>(bytes), Range(0, ranks)),
                (parts - 1) * kLatencyInside + bytes / parts / one_link, 1e-9);
    // Ranks that do not lie side by side use as many links.
    EXPECT_EQ(*model.Time(Effect::kAllGather, static_cast<int64_t>(bytes), Range(0, ranks, 8 / ranks)),
              *model.Time(Effect::kAllGather, static_cast<int64_t>(bytes), Range(0, ranks)));
  }
  // Between nodes the adapters are slower than one link.
  EXPECT_EQ(*model.Time(Effect::kAllGather, 1 << 20, Range(0, 4, 8)),
            *CollectiveCostModel(TestCluster(8, 4)).Time(Effect::kAllGather, 1 << 20, Range(0, 4, 8)));
  EXPECT_GT(*model.Time(Effect::kAllReduce, 1 << 28, Range(0, 2), AllReduceAlgorithm::kTree),
            3 * *model.Time(Effect::kAllReduce, 1 << 28, Range(0, 8), AllReduceAlgorithm::kTree));
}

}  // namespace
}  // namespace legoai::sim
