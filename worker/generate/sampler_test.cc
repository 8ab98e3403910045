#include "worker/generate/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>
#include <vector>

#include "proto/errors.h"

namespace legoai::generate {
namespace {

std::vector<float> RandomLogits(size_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal(0, 2);
  std::vector<float> logits(count);
  for (float& logit : logits) logit = normal(random);
  return logits;
}

std::vector<double> Softmax(const std::vector<float>& logits, double temperature) {
  std::vector<double> p;
  for (const float logit : logits) p.push_back(std::exp(logit / temperature));
  const double total = std::accumulate(p.begin(), p.end(), 0.0);
  for (double& one : p) one /= total;
  return p;
}

TEST(SamplerTest, TemperatureZeroTakesTheFirstOfTheLargest) {
  Sampler sampler({.temperature = 0, .top_p = 0.5, .seed = 9});
  EXPECT_EQ(sampler.Next(std::vector<float>{1, 3, -2, 3}).value(), 1);
  EXPECT_EQ(sampler.Next(std::vector<float>{-5}).value(), 0);
}

// Pearson's chi-squared over 20 tokens: 43.8 is exceeded by chance once in a thousand times, and the seed is fixed.
TEST(SamplerTest, DrawsWithTheProbabilitiesOfTheSoftmax) {
  const std::vector<float> logits = RandomLogits(20, 1);
  for (const double temperature : {0.7, 1.0, 2.0}) {
    const std::vector<double> p = Softmax(logits, temperature);
    Sampler sampler({.temperature = temperature, .top_p = 1, .seed = 4});
    constexpr int kDraws = 100000;
    std::vector<int> counts(p.size());
    for (int i = 0; i < kDraws; ++i) ++counts[static_cast<size_t>(sampler.Next(logits).value())];
    double chi_squared = 0;
    for (size_t id = 0; id < p.size(); ++id) {
      const double expected = p[id] * kDraws;
      chi_squared += (counts[id] - expected) * (counts[id] - expected) / expected;
    }
    EXPECT_LT(chi_squared, 43.8) << temperature;
  }
}

// By hand: sorted by probability, the first ones whose sum reaches top_p.
TEST(SamplerTest, TopPDrawsFromTheSmallestSetThatReachesIt) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  for (int round = 0; round < 20; ++round) {
    const std::vector<float> logits = RandomLogits(12, random());
    const double top_p = std::uniform_real_distribution<double>(0.05, 0.95)(random);
    const std::vector<double> p = Softmax(logits, 1.0);
    std::vector<size_t> order(p.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return p[a] > p[b]; });
    std::set<int64_t> expected, drawn;
    double sum = 0;
    for (size_t i = 0; i < order.size() && sum < top_p; sum += p[order[i++]]) expected.insert(static_cast<int64_t>(order[i]));
    Sampler sampler({.temperature = 1, .top_p = top_p, .seed = random()});
    for (int i = 0; i < 3000; ++i) drawn.insert(sampler.Next(logits).value());
    EXPECT_TRUE(std::includes(expected.begin(), expected.end(), drawn.begin(), drawn.end())) << "top_p " << top_p;
    EXPECT_TRUE(drawn.count(static_cast<int64_t>(order[0])));
    if (p[order[expected.size() - 1]] > 0.01) {
      EXPECT_EQ(drawn, expected) << "top_p " << top_p;
    }
  }
}

TEST(SamplerTest, ATinyTopPIsGreedy) {
  const std::vector<float> logits = RandomLogits(50, 3);
  Sampler greedy({.temperature = 0, .top_p = 1, .seed = 0}), narrow({.temperature = 5, .top_p = 1e-9, .seed = 8});
  for (int i = 0; i < 50; ++i) EXPECT_EQ(narrow.Next(logits).value(), greedy.Next(logits).value());
}

TEST(SamplerTest, ASeedGivesOneSequence) {
  const std::vector<float> logits = RandomLogits(50, 3);
  const auto draw = [&](uint64_t seed) {
    Sampler sampler({.temperature = 1, .top_p = 0.9, .seed = seed});
    std::vector<int64_t> ids;
    for (int i = 0; i < 40; ++i) ids.push_back(sampler.Next(logits).value());
    return ids;
  };
  EXPECT_EQ(draw(1), draw(1));
  EXPECT_NE(draw(1), draw(2));
}

TEST(SamplerTest, LogitsThatAreNotFiniteAreAnError) {
  const float nan = std::numeric_limits<float>::quiet_NaN(), infinity = std::numeric_limits<float>::infinity();
  for (const double temperature : {0.0, 1.0}) {
    Sampler sampler({.temperature = temperature, .top_p = 1, .seed = 0});
    EXPECT_FALSE(sampler.Next(std::vector<float>{1, nan}).ok());
    EXPECT_FALSE(sampler.Next(std::vector<float>{nan, 1}).ok());
    EXPECT_FALSE(sampler.Next(std::vector<float>{1, infinity}).ok());
    EXPECT_FALSE(sampler.Next(std::vector<float>{-infinity, -infinity}).ok());
    EXPECT_EQ(sampler.Next(std::vector<float>{-infinity, 2, -infinity}).value(), 1);
  }
}

TEST(SamplerTest, WhatCannotBeSampledWithIsNamed) {
  const auto field = [](double temperature, double top_p) {
    const auto fault = GetFieldViolation(CheckSampling({temperature, top_p, 0}));
    return fault ? fault->field() : "";
  };
  EXPECT_EQ(field(-0.1, 1), "--temperature");
  EXPECT_EQ(field(std::numeric_limits<double>::infinity(), 1), "--temperature");
  EXPECT_EQ(field(std::numeric_limits<double>::quiet_NaN(), 1), "--temperature");
  for (const double top_p : {0.0, -1.0, 1.01, std::numeric_limits<double>::quiet_NaN()}) EXPECT_EQ(field(1, top_p), "--top-p");
  EXPECT_EQ(field(0, 1), "");
  EXPECT_EQ(field(0.8, 0.001), "");
}

}  // namespace
}  // namespace legoai::generate
