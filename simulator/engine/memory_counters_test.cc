#include "simulator/engine/memory_counters.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "core/hardware/catalog.h"
#include "core/trace/testing/trace_builder.h"
#include "proto/testing/assert_ok.h"
#include "proto/testing/seeded_random.h"

namespace legoai::sim {
namespace {

std::vector<CounterPoint> RandomPoints(size_t count, std::mt19937_64* random) {
  std::vector<CounterPoint> points;
  int64_t now = 0;
  for (size_t i = 0; i < count; ++i) {
    now += static_cast<int64_t>((*random)() % 3);
    points.push_back({now, static_cast<int64_t>((*random)() % 1000000)});
  }
  return points;
}

bool SamePoint(const CounterPoint& a, const CounterPoint& b) { return a.nanoseconds == b.nanoseconds && a.bytes == b.bytes; }
bool Lower(const CounterPoint& a, const CounterPoint& b) { return a.bytes < b.bytes; }

TEST(MemoryCountersTest, ThinningKeepsEndsAndPeaksInOrder) {
  SeededRandom random;
  for (int i = 0; i < 300; ++i) {
    const auto points = RandomPoints(1 + random() % 3000, &random);
    const int64_t limit = 4 + random() % 500;
    SCOPED_TRACE(testing::Message() << points.size() << " points, limit " << limit);
    const auto thinned = Thinned(points, limit);
    ASSERT_LE(static_cast<int64_t>(thinned.size()), std::max<int64_t>(limit, 4));
    EXPECT_TRUE(SamePoint(thinned.front(), points.front()));
    EXPECT_TRUE(SamePoint(thinned.back(), points.back()));
    EXPECT_EQ(std::max_element(thinned.begin(), thinned.end(), Lower)->bytes,
              std::max_element(points.begin(), points.end(), Lower)->bytes);
    EXPECT_EQ(std::min_element(thinned.begin(), thinned.end(), Lower)->bytes,
              std::min_element(points.begin(), points.end(), Lower)->bytes);
    auto next = points.begin();  // all of them are points that were there, none twice, in their order
    for (const CounterPoint& point : thinned) {
      next = std::find_if(next, points.end(), [&](const CounterPoint& other) { return SamePoint(point, other); });
      ASSERT_NE(next, points.end());
      ++next;
    }
    if (static_cast<int64_t>(points.size()) <= limit) {
      EXPECT_EQ(thinned.size(), points.size());
    } else {
      EXPECT_GE(static_cast<int64_t>(thinned.size()), std::min<int64_t>(limit / 4, 2));
    }
  }
}

// No stretch of the step is left without its own peak.
TEST(MemoryCountersTest, ThinningKeepsThePeakOfEveryStretch) {
  std::vector<CounterPoint> points;
  for (int64_t i = 0; i < 10000; ++i) points.push_back({i, i % 1000 == 617 ? 5000 + i : i % 7});
  const auto thinned = Thinned(points, 400);
  EXPECT_LE(thinned.size(), 400u);
  EXPECT_EQ(std::count_if(thinned.begin(), thinned.end(), [](const CounterPoint& point) { return point.bytes > 5000; }), 10);
}

// What an operator allocates is there from its start and what is freed after it goes at its end; its workspace lives in between.
TEST(MemoryCountersTest, PointsAreWhereTheOperatorsRun) {
  graph::TraceBuilder b;
  constexpr auto kExternal = graph::StorageKind::kExternal;
  auto weight = b.New(v1::BFLOAT16, {1024, 1024}, kExternal, graph::Category::kShardedParameter);
  auto q = b.New(v1::BFLOAT16, {1, 16, 1024, 64}, kExternal, graph::Category::kInput);
  auto lse = b.New(v1::FLOAT32, {1, 16, 1024}, kExternal, graph::Category::kInput);
  auto x = b.New(v1::BFLOAT16, {1024, 1024}), y = b.New(v1::BFLOAT16, {1024, 1024});
  b.Op("aten::mm", {weight, weight}, {x});
  b.Op("lego::attention_backward", {q, q, q, q, q, lse, true, 0.1}, {});
  b.Op("aten::mm", {x, weight}, {y});
  b.Free(b.StorageOf(x));
  auto cluster = ParseCluster("h100-sxm-80:1x1");
  auto roofline = RooflineModel::Create(cluster->device());
  ASSERT_OK_AND_ASSIGN(auto step, SimulateStep({{&b.trace(), 0, 0}}, *cluster, **roofline, CollectiveCostModel(*cluster)));
  MemoryOptions options = MemoryOptionsOf(cluster->device());
  options.timeline = true;
  ASSERT_OK_AND_ASSIGN(auto profile, SimulateMemory(b.trace(), options));
  const auto counters = MemoryCounters(0, step, profile);
  const int64_t each = 2 << 20, workspace = profile.categories.workspace();
  ASSERT_GT(workspace, 0);
  auto ns = [](double seconds) { return static_cast<int64_t>(seconds * 1e9 + 0.5); };
  std::vector<int64_t> starts, ends;
  for (double seconds : step.schedule.start) starts.push_back(ns(seconds));
  for (double seconds : step.schedule.finish) ends.push_back(ns(seconds));
  ASSERT_EQ(starts.size(), 3u);
  auto points = [&](const std::string& name) {
    std::vector<std::pair<int64_t, int64_t>> found;
    for (const MemoryCounter& counter : counters) {
      if (counter.name != name) continue;
      for (const CounterPoint& point : counter.points) found.emplace_back(point.nanoseconds, point.bytes);
    }
    return found;
  };
  using Points = std::vector<std::pair<int64_t, int64_t>>;
  EXPECT_EQ(points("memory: activation"), (Points{{starts[0], each}, {starts[2], 2 * each}, {ends[2], each}}));
  EXPECT_EQ(points("memory: sharded parameter"), (Points{{starts[0], each}}));
  EXPECT_EQ(points("memory: optimizer state"), Points());
  EXPECT_EQ(points("memory: workspace"), (Points{{starts[0], 0}, {starts[1], workspace}, {ends[1], 0}}));
  const int64_t inputs = profile.start_bytes - each;
  EXPECT_EQ(profile.peak_requested_bytes, inputs + 2 * each + workspace);
  EXPECT_EQ(points("memory"), (Points{{starts[0], inputs + 2 * each},
                                      {starts[1], inputs + 2 * each + workspace},
                                      {ends[1], inputs + 2 * each},
                                      {starts[2], inputs + 3 * each},
                                      {ends[2], inputs + 2 * each}}));
}

}  // namespace
}  // namespace legoai::sim
