// The loss and its gradient against the formula written out in long double: loss = scale x sum over tokens of
// (log sum exp x - x[target]), gradient = scale x (softmax x - [target]).
#include "worker/train/loss.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

namespace legoai::train {
namespace {

constexpr int64_t kBatch = 3, kSeq = 5, kVocabulary = 17, kTokens = kBatch * kSeq;
constexpr double kScale = 1.0 / 60;

struct Sample {
  at::Tensor logits, targets;  // [kBatch, kSeq, kVocabulary] in `dtype`, [kBatch, kSeq]
};

// Logits of normal size around `offset`, rounded to `dtype`.
Sample MakeSample(std::mt19937& random, at::ScalarType dtype, double offset) {
  std::normal_distribution<float> normal(static_cast<float>(offset), 4);
  Sample sample = {at::empty({kBatch, kSeq, kVocabulary}), at::empty({kBatch, kSeq}, at::TensorOptions(at::kLong))};
  for (int64_t i = 0; i < sample.logits.numel(); ++i) sample.logits.mutable_data_ptr<float>()[i] = normal(random);
  for (int64_t i = 0; i < kTokens; ++i) {
    sample.targets.mutable_data_ptr<int64_t>()[i] = static_cast<int64_t>(random() % kVocabulary);
  }
  sample.logits = sample.logits.to(dtype);
  return sample;
}

struct Expected {
  long double loss = 0;
  std::vector<long double> gradient;
};

Expected Reference(const Sample& sample) {
  const at::Tensor logits = sample.logits.detach().to(at::kFloat).contiguous();
  Expected expected;
  for (int64_t token = 0; token < kTokens; ++token) {
    const float* x = logits.const_data_ptr<float>() + token * kVocabulary;
    const int64_t target = sample.targets.const_data_ptr<int64_t>()[token];
    const long double largest = *std::max_element(x, x + kVocabulary);
    long double sum = 0;
    for (int64_t i = 0; i < kVocabulary; ++i) sum += std::exp(x[i] - largest);
    expected.loss += kScale * (largest + std::log(sum) - x[target]);
    for (int64_t i = 0; i < kVocabulary; ++i) {
      expected.gradient.push_back(kScale * (std::exp(x[i] - largest) / sum - (i == target ? 1 : 0)));
    }
  }
  return expected;
}

class CrossEntropy : public ::testing::TestWithParam<at::ScalarType> {};

TEST_P(CrossEntropy, LossAndGradientAreTheFormula) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE(::testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  for (const double offset : {0.0, 300.0, -300.0}) {  // exp() of these overflows, or is nothing, in fp32
    Sample sample = MakeSample(random, GetParam(), offset);
    sample.logits.set_requires_grad(true);
    const Expected expected = Reference(sample);
    const at::Tensor loss = MakeCrossEntropy(kScale)(sample.logits, sample.targets);
    ASSERT_EQ(loss.scalar_type(), at::kFloat);
    ASSERT_EQ(loss.dim(), 0);
    EXPECT_NEAR(loss.item<float>(), expected.loss, 1e-5 * std::abs(expected.loss) + 1e-5) << offset;
    loss.backward();
    ASSERT_EQ(sample.logits.grad().scalar_type(), GetParam());
    const at::Tensor gradient = sample.logits.grad().to(at::kFloat).contiguous();
    const double relative = GetParam() == at::kFloat ? 1e-4 : 1.0 / 128;  // bf16 keeps eight bits
    for (size_t i = 0; i < expected.gradient.size(); ++i) {
      ASSERT_NEAR(gradient.const_data_ptr<float>()[i], expected.gradient[i],
                  relative * std::abs(static_cast<double>(expected.gradient[i])) + 1e-6)
          << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, CrossEntropy, ::testing::Values(at::kFloat, at::kBFloat16));

TEST(CrossEntropyOfParts, AddsUpToTheWhole) {
  std::mt19937 random(7);
  const Sample sample = MakeSample(random, at::kFloat, 0);
  const auto loss = MakeCrossEntropy(kScale);
  double sum = 0;
  for (int64_t row = 0; row < kBatch; ++row) {
    sum += loss(sample.logits.narrow(0, row, 1), sample.targets.narrow(0, row, 1)).item<float>();
  }
  EXPECT_NEAR(sum, loss(sample.logits, sample.targets).item<float>(), 1e-5);
}

TEST(CrossEntropyOfGuessing, IsTheLogarithmOfTheVocabulary) {
  Sample sample = {at::empty({kBatch, kSeq, kVocabulary}).fill_(3),
                   at::empty({kBatch, kSeq}, at::TensorOptions(at::kLong)).fill_(2)};
  EXPECT_NEAR(MakeCrossEntropy(1.0 / kTokens)(sample.logits, sample.targets).item<float>(), std::log(kVocabulary), 1e-5);
}

}  // namespace
}  // namespace legoai::train
