#include "server/rpc/downsample.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <set>

namespace legoai::server {
namespace {

std::vector<v1::StepMetrics> Curve(size_t count, std::mt19937_64* random, double held_out_share) {
  std::vector<v1::StepMetrics> points(count);
  std::uniform_real_distribution<double> uniform(0, 1);
  int64_t step = 0;
  for (v1::StepMetrics& point : points) {
    point.set_step(step += 1 + (*random)() % 3);
    if (uniform(*random) < 0.95) point.set_loss(10 / std::sqrt(step) + uniform(*random));
    if (uniform(*random) < 0.01) point.set_loss(std::numeric_limits<double>::quiet_NaN());
    if (uniform(*random) < held_out_share) point.set_validation_loss(uniform(*random));
  }
  return points;
}

TEST(Downsample, KeepsWhatItPromises) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(::testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  for (int round = 0; round < 300; ++round) {
    const size_t count = random() % 500, most = 2 + random() % 200;
    const auto points = Curve(count, &random, round % 3 == 0 ? 0.5 : 0.02);
    const auto kept = Downsample(points, most);
    ASSERT_EQ(kept.size() <= most, true);
    if (count <= most) {
      EXPECT_EQ(kept.size(), count);
      continue;
    }
    EXPECT_EQ(kept.front().step(), points.front().step());
    EXPECT_EQ(kept.back().step(), points.back().step());
    std::set<int64_t> steps, original;
    for (const auto& point : points) original.insert(point.step());
    for (const auto& point : kept) {
      EXPECT_TRUE(steps.empty() || point.step() > *steps.rbegin()) << "ascending";
      steps.insert(point.step());
      EXPECT_EQ(original.count(point.step()), 1u);
    }
    int64_t held_out = 0, missing = 0;
    for (size_t i = 1; i + 1 < points.size(); ++i) {
      held_out += points[i].has_validation_loss();
      missing += points[i].has_validation_loss() && steps.count(points[i].step()) == 0;
    }
    if (held_out <= static_cast<int64_t>(most) - 2) {
      EXPECT_EQ(missing, 0) << held_out << " of " << most;
    } else {
      EXPECT_GE(kept.size(), most - 1) << "the place is used for held-out losses";
    }
  }
}

// One step out of the line among thousands: whoever takes every n-th point, or means, loses it.
TEST(Downsample, ASpikeIsSeen) {
  std::vector<v1::StepMetrics> points(10000);
  for (size_t i = 0; i < points.size(); ++i) {
    points[i].set_step(static_cast<int64_t>(i) + 1);
    points[i].set_loss(i == 7777 ? 50 : 2);
  }
  const auto kept = Downsample(points, 100);
  EXPECT_GE(kept.size(), 99u);
  EXPECT_EQ(std::count_if(kept.begin(), kept.end(), [](const auto& point) { return point.loss() == 50; }), 1);
}

TEST(Downsample, HeldOutLossesWithoutEndAreThinnedEvenly) {
  std::vector<v1::StepMetrics> points(5000);
  for (size_t i = 0; i < points.size(); ++i) {
    points[i].set_step(static_cast<int64_t>(i) + 1);
    points[i].set_validation_loss(1);
  }
  const auto kept = Downsample(points, 100);
  ASSERT_EQ(kept.size(), 100u);
  for (size_t i = 1; i < kept.size(); ++i) EXPECT_LE(kept[i].step() - kept[i - 1].step(), 52);
}

}  // namespace
}  // namespace legoai::server
