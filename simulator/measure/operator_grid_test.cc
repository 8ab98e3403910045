#include "simulator/measure/operator_grid.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <tuple>

namespace legoai::sim {
namespace {

using Family = std::tuple<int, std::string, v1::DType>;

Family FamilyOf(const GridPoint& point) { return {point.tier, point.call.name, point.dtype}; }

std::map<Family, int64_t> Count(const std::vector<GridPoint>& points, size_t first) {
  std::map<Family, int64_t> counts;
  for (size_t i = 0; i < first; ++i) ++counts[FamilyOf(points[i])];
  return counts;
}

GridPoint Square(const std::string& name, int tier, int64_t size) {
  GridPoint point{.shape = {{"size", size}}, .tier = tier};
  point.call.name = name;
  return point;
}

TEST(OperatorGridTest, HasEachCallOnce) {
  for (const GridSize size : {GridSize::kFull, GridSize::kQuick}) {
    std::set<std::string> names;
    for (const GridPoint& point : OperatorGrid(size)) EXPECT_TRUE(names.insert(PointName(point)).second) << PointName(point);
  }
}

TEST(OperatorGridTest, HasWhatAStepIsMadeOf) {
  std::map<std::pair<std::string, v1::DType>, int64_t> counts;
  const auto grid = OperatorGrid(GridSize::kFull);
  for (const GridPoint& point : grid) ++counts[{point.call.name, point.dtype}];
  for (const v1::DType dtype : {v1::FLOAT32, v1::BFLOAT16}) {
    for (const char* name :
         {"aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm", "lego::attention", "lego::attention_backward", "aten::add",
          "aten::silu_backward", "aten::gelu", "lego::dropout", "aten::embedding", "aten::embedding_dense_backward",
          "lego::rms_norm_backward", "aten::native_layer_norm", "aten::_softmax", "aten::sum", "aten::copy_", "aten::clone"}) {
      EXPECT_GE((counts[{name, dtype}]), 3) << name << " " << v1::DType_Name(dtype);
    }
  }
  for (const char* name :
       {"aten::_fused_adamw_", "aten::_log_softmax_backward_data", "aten::nll_loss_forward", "aten::_foreach_norm"}) {
    EXPECT_GE((counts[{name, v1::FLOAT32}]), 10) << name;
  }
  EXPECT_GE((counts[{"aten::mm", v1::FLOAT16}]), 30);
  EXPECT_GE((counts[{"lego::attention", v1::FLOAT16}]), 15);
}

// Llama 3 8B's down projection on one of eight ranks, forward: 14336 / 8 inputs, 4096 outputs.
TEST(OperatorGridTest, HasTheShapesOfRanks) {
  const auto grid = OperatorGrid(GridSize::kFull);
  const auto found = std::find_if(grid.begin(), grid.end(), [](const GridPoint& point) {
    return point.use == "llama3-8b tp 8 down_proj forward" && point.shape.at("m") == 8192;
  });
  ASSERT_NE(found, grid.end());
  EXPECT_EQ(found->dtype, v1::BFLOAT16);
  EXPECT_EQ(found->shape.at("n"), 4096);
  EXPECT_EQ(found->shape.at("k"), 1792);
  EXPECT_EQ(found->shape.at("b_by_columns"), 1) << "a weight [out, in], transposed";
}

// A calibration that ends early has had every family of its tiers in proportion.
TEST(OperatorGridTest, AnyFirstPartIsSpread) {
  const auto grid = OperatorGrid(GridSize::kFull);
  const auto whole = Count(grid, grid.size());
  size_t tier_begin = 0;
  for (const int tier : {1, 2, 3}) {
    const auto tier_end = static_cast<size_t>(
        std::find_if(grid.begin() + tier_begin, grid.end(), [&](const auto& point) { return point.tier > tier; }) - grid.begin());
    const size_t half = (tier_begin + tier_end) / 2;
    const auto begun = Count(grid, tier_begin), counts = Count(grid, half);
    for (const auto& [family, count] : whole) {
      if (std::get<0>(family) != tier) continue;
      const auto found = counts.find(family);
      const double done = found == counts.end() ? 0 : static_cast<double>(found->second);
      EXPECT_NEAR(done, 0.5 * static_cast<double>(count), 0.02 * static_cast<double>(count) + 1.01) << std::get<1>(family);
      EXPECT_EQ(begun.count(family), 0u) << std::get<1>(family) << " of tier " << tier << " came before its tier";
    }
    tier_begin = tier_end;
  }
  EXPECT_EQ(tier_begin, grid.size());
}

TEST(MeasuringOrderTest, GoesFromTheEndsToTheMiddlesOfEachFamily) {
  std::vector<GridPoint> points;
  for (const int64_t size : {8, 1, 4, 2, 7, 3, 6, 5}) points.push_back(Square("b", 1, size));
  points.push_back(Square("a", 2, 1));
  points.push_back(Square("b", 1, 4));  // again
  std::vector<int64_t> sizes;
  for (const GridPoint& point : InMeasuringOrder(points)) {
    sizes.push_back(point.shape.at("size"));
    EXPECT_EQ(point.tier == 2, sizes.size() == 9);
  }
  EXPECT_EQ(sizes, (std::vector<int64_t>{1, 5, 3, 7, 2, 6, 4, 8, 1}));
}

}  // namespace
}  // namespace legoai::sim
