#include "core/trace/interner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>
#include <set>

namespace legoai::graph {
namespace {

TEST(InternerTest, ConstantsAreEqualByTypeAndBits) {
  Trace trace;
  Interner interner(&trace);
  const std::vector<Constant> different = {std::monostate(),
                                           false,
                                           true,
                                           int64_t{0},
                                           int64_t{1},
                                           0.0,
                                           -0.0,
                                           1.0,
                                           4.9406564584124654e-324,  // its bits are those of the integer 1
                                           std::numeric_limits<double>::quiet_NaN(),
                                           std::string(),
                                           std::string("\x01\0\0\0\0\0\0\0", 8),
                                           std::vector<int64_t>{},
                                           std::vector<int64_t>{1},
                                           std::vector<int64_t>{1, 0},
                                           std::vector<double>{},
                                           std::vector<double>{1.0},
                                           std::vector<bool>{},
                                           std::vector<bool>{true},
                                           std::vector<bool>{true, false},
                                           DeviceConstant()};
  std::set<uint32_t> indices;
  for (const auto& constant : different) indices.insert(interner.Constant(constant));
  EXPECT_EQ(indices.size(), different.size());
  for (const auto& constant : different) EXPECT_LT(interner.Constant(constant), different.size());
  EXPECT_EQ(trace.constants.size(), different.size());
}

// An index is shared exactly by geometries that are equal, and leads back to them.
TEST(InternerTest, GeometriesAgainstALinearSearch) {
  const unsigned seed = std::random_device()();
  std::printf("seed %u\n", seed);
  std::mt19937 random(seed);
  Trace trace;
  Interner interner(&trace);
  std::vector<Geometry> seen;
  for (int i = 0; i < 2000; ++i) {
    Geometry geometry{random() % 2 ? v1::FLOAT32 : v1::BFLOAT16, static_cast<int64_t>(random() % 2), {}, {}};
    for (int dims = random() % 3; dims > 0; --dims) {
      geometry.sizes.push_back(random() % 3);
      geometry.strides.push_back(random() % 3);
    }
    const uint32_t index = interner.Geometry({geometry.dtype, geometry.offset, geometry.sizes, geometry.strides});
    const auto expected = std::find(seen.begin(), seen.end(), geometry) - seen.begin();
    if (expected == static_cast<int64_t>(seen.size())) seen.push_back(geometry);
    EXPECT_EQ(index, expected);
    EXPECT_EQ(trace.geometries[index], geometry);
  }
  EXPECT_EQ(trace.geometries.size(), seen.size());
}

TEST(InternerTest, ValuesAndModules) {
  Trace trace;
  Interner interner(&trace);
  EXPECT_EQ(interner.Value(3, 4), 0);
  EXPECT_EQ(interner.Value(4, 3), 1);
  EXPECT_EQ(interner.Value(3, 4), 0);
  const int64_t sizes[] = {2, 3}, strides[] = {3, 1}, other_strides[] = {1, 2};
  const GeometryView rows{v1::FLOAT32, 0, sizes, strides}, columns{v1::FLOAT32, 0, sizes, other_strides};
  EXPECT_EQ(interner.Value(5, rows), 2);
  EXPECT_EQ(interner.Value(5, columns), 3);
  EXPECT_EQ(interner.Value(5, rows), 2);
  EXPECT_EQ(interner.Value(9, rows), 4);
  EXPECT_EQ(interner.Value(9, interner.Geometry(rows)), 4);
  EXPECT_EQ(interner.Value(9, interner.Geometry(columns)), 5);
  EXPECT_EQ(interner.Value(9, columns), 5);
  EXPECT_EQ(interner.Module(""), 0);
  EXPECT_EQ(interner.Module("layers.0"), 1);
  EXPECT_EQ(interner.Module("layers.1"), 2);
  EXPECT_EQ(interner.Module("layers.0"), 1);
  EXPECT_EQ(interner.Module(""), 0);
  EXPECT_THAT(trace.modules, testing::ElementsAre("", "layers.0", "layers.1"));
}

}  // namespace
}  // namespace legoai::graph
