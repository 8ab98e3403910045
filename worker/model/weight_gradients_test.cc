#include "worker/model/weight_gradients.h"

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/linspace.h>
#include <c10/util/Exception.h>
#include <gtest/gtest.h>

#include "worker/model/layers.h"
#include "worker/model/module.h"

namespace legoai::model {
namespace {

using at::Tensor;

Tensor Values(at::IntArrayRef sizes, double to) {
  int64_t count = 1;
  for (const int64_t size : sizes) count *= size;
  return at::linspace(-1, to, count).view(sizes);
}

// Two layers, the second of which has a bias.
struct Chain {
  Tensor x = Values({4, 3}, 2).requires_grad_(true), first = Values({5, 3}, 1).requires_grad_(true),
         second = Values({2, 5}, 3).requires_grad_(true), bias = Values({2}, 1).requires_grad_(true);
  Tensor Loss() const { return LinearFunction(LinearFunction(x, first, Tensor()), second, bias).square().sum(); }
};

class WeightGradientsTest : public testing::Test {
 protected:
  void SetUp() override { at::set_num_threads(1); }
};

TEST_F(WeightGradientsTest, ComeLaterAndAreTheSameBitByBit) {
  Chain plain, parted;
  for (int microbatch = 0; microbatch < 3; ++microbatch) plain.Loss().backward();
  WeightGradients queues[3];
  for (WeightGradients& queue : queues) {
    const DeferWeightGradients later(&queue);
    parted.Loss().backward();
    EXPECT_FALSE(queue.empty());
  }
  EXPECT_TRUE(at::equal(parted.x.grad(), plain.x.grad()));
  EXPECT_TRUE(at::equal(parted.bias.grad(), plain.bias.grad()));
  EXPECT_FALSE(parted.first.grad().defined());
  for (WeightGradients& queue : queues) {
    queue.Compute();
    EXPECT_TRUE(queue.empty());
  }
  EXPECT_TRUE(at::equal(parted.first.grad(), plain.first.grad()));
  EXPECT_TRUE(at::equal(parted.second.grad(), plain.second.grad()));
}

TEST_F(WeightGradientsTest, OneQueueAtATime) {
  WeightGradients queue;
  const DeferWeightGradients later(&queue);
  EXPECT_EQ(DeferWeightGradients::Current(), &queue);
  EXPECT_THROW(DeferWeightGradients again(&queue), c10::Error);
}

// A gradient that is put off is told of when it is there, not by the backward.
TEST_F(WeightGradientsTest, AreReadyWhenTheyAreComputed) {
  Parameter parameter({5, 3}, {});
  parameter.value = Values({5, 3}, 1).requires_grad_(true);
  int told = 0;
  parameter.OnGradientReady([&](Parameter& p) {
    ++told;
    EXPECT_TRUE(p.value.grad().defined());
  });
  const auto node = NotifyOnAccumulate(&parameter);
  const Tensor x = Values({4, 3}, 2).requires_grad_(true);
  WeightGradients queue;
  {
    const DeferWeightGradients later(&queue);
    LinearFunction(x, parameter.value, Tensor()).sum().backward();
  }
  EXPECT_EQ(told, 0);
  queue.Compute();
  EXPECT_EQ(told, 1);
}

}  // namespace
}  // namespace legoai::model
