#include "server/rpc/downsample.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "proto/testing/seeded_random.h"

namespace legoai::server {
namespace {

std::vector<CurvePoint> Curve(size_t count, std::mt19937_64* random, double held_out_share) {
  std::vector<CurvePoint> curve(count);
  std::uniform_real_distribution<double> uniform(0, 1);
  double step = 0;
  for (CurvePoint& point : curve) {
    point.step = step += 1.0 + static_cast<double>((*random)() % 3);
    point.loss = 10 / std::sqrt(step) + uniform(*random);
    if (uniform(*random) < 0.05) point.loss = std::numeric_limits<double>::quiet_NaN();
    point.held_out = uniform(*random) < held_out_share;
  }
  return curve;
}

TEST(Downsample, KeepsWhatItPromises) {
  SeededRandom random;
  for (int round = 0; round < 300; ++round) {
    const size_t count = random() % 500, most = 2 + random() % 200;
    const auto curve = Curve(count, &random, round % 3 == 0 ? 0.5 : 0.02);
    const auto kept = Downsample(curve, most);
    ASSERT_LE(kept.size(), most);
    if (count <= most) {
      EXPECT_EQ(kept.size(), count);
      continue;
    }
    EXPECT_EQ(*kept.begin(), 0u);
    EXPECT_EQ(*kept.rbegin(), count - 1);
    size_t held_out = 0, missing = 0;
    for (size_t i = 1; i + 1 < count; ++i) {
      held_out += curve[i].held_out;
      missing += curve[i].held_out && kept.count(i) == 0;
    }
    if (held_out <= most - 2) {
      EXPECT_EQ(missing, 0u) << held_out << " of " << most;
    } else {
      EXPECT_GE(kept.size(), most - 1) << "the place is used for held-out losses";
    }
  }
}

// One step out of the line among thousands: whoever takes every n-th point, or means, loses it.
TEST(Downsample, ASpikeIsSeen) {
  std::vector<CurvePoint> curve(10000);
  for (size_t i = 0; i < curve.size(); ++i) curve[i] = {.step = static_cast<double>(i + 1), .loss = i == 7777 ? 50.0 : 2.0};
  const auto kept = Downsample(curve, 100);
  EXPECT_GE(kept.size(), 99u);
  EXPECT_EQ(kept.count(7777), 1u);
}

TEST(Downsample, HeldOutLossesWithoutEndAreThinnedEvenly) {
  std::vector<CurvePoint> curve(5000);
  for (size_t i = 0; i < curve.size(); ++i) {
    curve[i] = {.step = static_cast<double>(i + 1), .loss = std::numeric_limits<double>::quiet_NaN(), .held_out = true};
  }
  const auto kept = Downsample(curve, 100);
  ASSERT_EQ(kept.size(), 100u);
  size_t before = 0;
  for (const size_t place : kept) {
    EXPECT_LE(place - before, 52u);
    before = place;
  }
}

}  // namespace
}  // namespace legoai::server
