#include "core/trace/live_bytes.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "core/trace/testing/trace_builder.h"

namespace legoai::graph {
namespace {

TEST(LiveBytes, EveryCategoryHasAName) {
  std::set<std::string> names;
  for (int i = 0; i < kCategories; ++i) names.insert(CategoryText(static_cast<Category>(i)));
  EXPECT_EQ(names.size(), static_cast<size_t>(kCategories));
}

TEST(LiveBytes, StoragesLiveFromTheirFirstMentionToTheirEnd) {
  TraceBuilder b;
  const auto weight = b.New(v1::FLOAT32, {10, 10}, StorageKind::kExternal, Category::kShardedParameter);
  const auto x = b.New(v1::BFLOAT16, {10, 10}), y = b.New(v1::FLOAT32, {10});
  b.Op("aten::mm", {weight, weight}, {x});
  b.Op("aten::sum", {x}, {y});
  b.Free(b.StorageOf(x));
  b.Op("lego::resize_storage_", {weight, int64_t{0}}, {}, 1);
  b.Op("lego::resize_storage_", {weight, int64_t{400}}, {}, 1);
  LiveBytes live(b.trace());
  std::vector<int64_t> total = {live.total()}, activations = {live.of(Category::kActivation)};
  for (const Instruction& instruction : b.trace().instructions) {
    live.Run(instruction);
    total.push_back(live.total());
    activations.push_back(live.of(Category::kActivation));
  }
  EXPECT_EQ(total, (std::vector<int64_t>{400, 600, 640, 440, 40, 440}));
  EXPECT_EQ(activations, (std::vector<int64_t>{0, 200, 240, 40, 40, 40}));
  EXPECT_EQ(live.of(Category::kShardedParameter), 400);
}

}  // namespace
}  // namespace legoai::graph
