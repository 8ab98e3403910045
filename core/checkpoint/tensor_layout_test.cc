#include "core/checkpoint/tensor_layout.h"

#include <gtest/gtest.h>

#include <random>

namespace legoai::checkpoint {
namespace {

Rectangle RandomInside(std::mt19937& random, const std::vector<int64_t>& shape) {
  Rectangle r;
  for (int64_t size : shape) {
    const int64_t a = random() % (size + 1), b = random() % (size + 1);
    r.offsets.push_back(std::min(a, b));
    r.sizes.push_back(std::max(a, b) - std::min(a, b));
  }
  return r;
}

bool Contains(const Rectangle& r, const std::vector<int64_t>& index) {
  for (size_t d = 0; d < index.size(); ++d)
    if (index[d] < r.offsets[d] || index[d] >= r.offsets[d] + r.sizes[d]) return false;
  return true;
}

// Calls `visit` with every index of the tensor, in row-major order.
template <typename Visit>
void ForEach(const std::vector<int64_t>& shape, const Visit& visit) {
  const int64_t volume = Volume(shape);
  std::vector<int64_t> index(shape.size());
  for (int64_t at = 0; at < volume; ++at) {
    int64_t rest = at;
    for (size_t d = shape.size(); d-- > 0;) index[d] = rest % shape[d], rest /= shape[d];
    visit(at, index);
  }
}

// The buffer of a rectangle, filled from the global tensor whose element values are their positions.
std::vector<int16_t> Fill(const std::vector<int64_t>& shape, const Rectangle& r) {
  std::vector<int16_t> buffer;
  ForEach(shape, [&](int64_t at, const auto& index) {
    if (Contains(r, index)) buffer.push_back(static_cast<int16_t>(at));
  });
  return buffer;
}

TEST(RectangleTest, IntersectAndCopyAgreeWithElementByElement) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  for (int round = 0; round < 2000; ++round) {
    std::vector<int64_t> shape(random() % 5);
    for (int64_t& size : shape) size = 1 + random() % 6;
    const Rectangle source = RandomInside(random, shape), target = RandomInside(random, shape);
    const std::vector<int16_t> from = Fill(shape, source);
    std::vector<int16_t> expected, to(Volume(target.sizes), -1);
    int64_t shared = 0;
    ForEach(shape, [&](int64_t at, const auto& index) {
      if (!Contains(target, index)) return;
      expected.push_back(Contains(source, index) ? static_cast<int16_t>(at) : int16_t{-1});
      shared += Contains(source, index);
    });
    const std::optional<Rectangle> part = Intersect(source, target);
    ASSERT_EQ(part ? Volume(part->sizes) : 0, shared);
    if (part)
      CopyRectangle(reinterpret_cast<const char*>(from.data()), source, reinterpret_cast<char*>(to.data()), target, *part, 2);
    ASSERT_EQ(to, expected);
  }
}

TEST(RectangleTest, WholeOfAScalarIsOneElement) {
  EXPECT_EQ(Volume({}), 1);
  float from = 2.5f, to = 0;
  CopyRectangle(reinterpret_cast<char*>(&from), WholeOf({}), reinterpret_cast<char*>(&to), WholeOf({}), WholeOf({}), 4);
  EXPECT_EQ(to, 2.5f);
}

TEST(RectangleTest, CheckInsideNamesTensorAndRange) {
  EXPECT_TRUE(CheckInside("w", {4, 4}, {{0, 0}, {4, 4}}).ok());
  EXPECT_TRUE(CheckInside("w", {4, 4}, {{4, 0}, {0, 4}}).ok());
  EXPECT_FALSE(CheckInside("w", {4, 4}, {{0}, {4}}).ok());
  EXPECT_FALSE(CheckInside("w", {4, 4}, {{-1, 0}, {1, 4}}).ok());
  EXPECT_FALSE(CheckInside("w", {4, 4}, {{0, 0}, {-1, 4}}).ok());
  EXPECT_FALSE(CheckInside("w", {4, 4}, {{INT64_MAX, 0}, {2, 4}}).ok());
  const absl::Status status = CheckInside("w", {4, 4}, {{2, 0}, {3, 4}});
  EXPECT_NE(status.message().find("w = [2, 0] + [3, 4]"), std::string::npos) << status;
  EXPECT_NE(status.message().find("[4, 4]"), std::string::npos) << status;
}

}  // namespace
}  // namespace legoai::checkpoint
