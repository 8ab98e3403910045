#include "simulator/memory/memory_simulator.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

#include "core/trace/live_bytes.h"
#include "core/trace/testing/trace_builder.h"

namespace legoai::sim {
namespace {

using graph::Category;
using graph::StorageKind;
using graph::TraceBuilder;

MemoryProfile Simulate(const TraceBuilder& builder, int64_t rounding = 512, v1::DeviceKind kind = v1::CUDA) {
  auto profile = SimulateMemory(builder.trace(), {.kind = kind, .rounding_bytes = rounding, .threads = 1, .timeline = true});
  EXPECT_TRUE(profile.ok()) << profile.status();
  return profile.ok() ? *profile : MemoryProfile();
}

TEST(MemorySimulatorTest, BirthsFreesResizesAndThePlaceOfThePeak) {
  TraceBuilder b;
  auto weight = b.New(v1::FLOAT32, {100}, StorageKind::kExternal, Category::kShardedParameter);
  uint32_t gathered = b.AddStorage(0, StorageKind::kExternal, Category::kUnshardedParameter, "full");
  auto full = b.View(gathered, v1::FLOAT32, {200}, {1});
  b.Op("lego::resize_storage_", {full, int64_t{800}}, {}, 1);
  b.phase = graph::Phase::kBackward;
  b.module = b.AddModule("model.layers.3.mlp");
  auto x = b.New(v1::FLOAT32, {200});
  b.Op("aten::mul.Tensor", {full, weight}, {x});
  auto y = b.New(v1::BFLOAT16, {10}, StorageKind::kInner, Category::kActivationGradient);
  b.Op("aten::sum", {x}, {y});
  b.Free(b.StorageOf(x));
  b.Op("lego::resize_storage_", {full, int64_t{0}}, {}, 1);
  b.Resize(b.StorageOf(y), 60);
  MemoryProfile profile = Simulate(b);
  EXPECT_EQ(profile.start_bytes, 400);
  EXPECT_EQ(profile.live_bytes, (std::vector<int64_t>{1200, 2000, 2020, 1220, 420, 460}));
  EXPECT_EQ(profile.peak_requested_bytes, 2020);
  EXPECT_EQ(profile.peak_position, 2u);
  EXPECT_EQ(profile.peak_at, "model.layers.3.mlp, backward");
  EXPECT_EQ(profile.peak_allocated_bytes, 512 + 1024 + 1024 + 512);
  EXPECT_EQ(profile.categories.sharded_parameter(), 400);
  EXPECT_EQ(profile.categories.unsharded_parameter(), 800);
  EXPECT_EQ(profile.categories.activation(), 800);
  EXPECT_EQ(profile.categories.activation_gradient(), 20);
  EXPECT_EQ(Sum(profile.categories), profile.peak_requested_bytes);
  ASSERT_EQ(profile.timeline.size(), 6u);
}

TEST(MemorySimulatorTest, WorkspaceLivesDuringItsOperatorOnly) {
  TraceBuilder b;
  auto q = b.New(v1::BFLOAT16, {1, 2, 128, 32}), k = b.New(v1::BFLOAT16, {1, 1, 128, 32});
  auto lse = b.New(v1::FLOAT32, {1, 2, 128});
  b.Op("lego::attention_backward", {q, q, k, k, q, lse, true, 0.1}, {});
  int64_t live = 16384 + 8192 + 1024;  // q, k and lse
  int64_t workspace = 2 * 128 * 32 * 4 + 2 * 128 * 4 + 2 * (2 * 128 * 32 * 2);
  MemoryProfile profile = Simulate(b);
  EXPECT_EQ(profile.live_bytes.back(), live);
  EXPECT_EQ(profile.peak_requested_bytes, live + workspace);
  EXPECT_EQ(profile.categories.workspace(), workspace);
  EXPECT_GT(Simulate(b, 1, v1::CPU).categories.workspace(), 0);
}

TEST(MemorySimulatorTest, RefusesUnknownOperatorsAndDoubleFrees) {
  TraceBuilder unknown;
  unknown.Op("aten::frobnicate", {}, {});
  EXPECT_EQ(SimulateMemory(unknown.trace(), {}).status().code(), absl::StatusCode::kNotFound);
  TraceBuilder twice;
  auto x = twice.New(v1::FLOAT32, {4});
  twice.Op("aten::empty", {}, {x});
  twice.Free(twice.StorageOf(x));
  twice.Free(twice.StorageOf(x));
  EXPECT_EQ(SimulateMemory(twice.trace(), {}).status().code(), absl::StatusCode::kInternal);
}

// Against a replay that sums all live storages anew after each instruction.
TEST(MemorySimulatorTest, RandomTracesAgreeWithASumOverEverything) {
  for (uint32_t seed = 1; seed <= 30; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937 random(seed);
    TraceBuilder b;
    std::map<uint32_t, int64_t> live;
    std::vector<int64_t> expected;
    int64_t peak = 0, allocated = 0;
    auto sum = [&](int64_t rounding) {
      int64_t total = 0;
      for (auto [id, bytes] : live) total += (bytes + rounding - 1) / rounding * rounding;
      return total;
    };
    for (int i = 0; i < 200; ++i) {
      auto pick = [&] { return std::next(live.begin(), random() % live.size()); };
      if (live.empty() || random() % 2 == 0) {
        auto category = static_cast<Category>(random() % kCategoryCount);
        auto x = b.New(v1::INT8, {static_cast<int64_t>(random() % 3000)}, StorageKind::kInner, category);
        b.Op("aten::empty.memory_format", {}, {x});
        live[b.StorageOf(x)] = b.trace().storages.back().bytes;
      } else if (random() % 3 == 0) {
        auto it = pick();
        it->second = random() % 5000;
        b.Resize(it->first, it->second);
      } else {
        auto it = pick();
        b.Free(it->first);
        live.erase(it);
      }
      expected.push_back(sum(1));
      peak = std::max(peak, sum(1));
      allocated = std::max(allocated, sum(512));
    }
    MemoryProfile profile = Simulate(b);
    EXPECT_EQ(profile.live_bytes, expected);
    graph::LiveBytes recorded(b.trace());  // what trainers say of their steps
    auto point = profile.timeline.begin();
    for (uint32_t i = 0; i < expected.size(); ++i) {
      recorded.Run(b.trace().instructions[i]);
      EXPECT_EQ(recorded.total(), expected[i]);
      if (point == profile.timeline.end() || point->position != i) continue;
      for (int c = 0; c < kCategoryCount; ++c) EXPECT_EQ(recorded.of(static_cast<Category>(c)), point->bytes[c]);
      ++point;
    }
    EXPECT_EQ(profile.peak_requested_bytes, peak);
    EXPECT_EQ(profile.peak_allocated_bytes, allocated);
    EXPECT_EQ(Sum(profile.categories), peak);
    for (const auto& point : profile.timeline) {
      int64_t total = 0;
      for (int64_t bytes : point.bytes) total += bytes;
      EXPECT_EQ(total, expected[point.position]);
    }
  }
}

}  // namespace
}  // namespace legoai::sim
