#include "worker/parallel/gradient_ready.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include "worker/model/layers.h"
#include "worker/model/weight_gradients.h"

namespace legoai::parallel {
namespace {

TEST(GradientReady, ComesOnceWithAllContributions) {
  model::Parameter parameter({3}, {});
  parameter.value = at::full({3}, 2.0).set_requires_grad(true);
  auto node = NotifyOnAccumulate(&parameter);
  int ready = 0;
  float seen = 0;
  parameter.OnGradientReady([&](model::Parameter& p) {
    ++ready;
    seen = p.value.grad().const_data_ptr<float>()[0];
  });
  (parameter.value * parameter.value + parameter.value).sum().backward();  // three uses
  EXPECT_EQ(ready, 1);
  EXPECT_EQ(seen, 5);
  (parameter.value * 3).sum().backward();
  EXPECT_EQ(ready, 2);
  EXPECT_EQ(seen, 8) << "value.grad() had been left";
}

TEST(GradientReady, EndsWithItsNode) {
  model::Parameter parameter({3}, {});
  parameter.value = at::full({3}, 2.0).set_requires_grad(true);
  NotifyOnAccumulate(&parameter).reset();
  int ready = 0;
  parameter.OnGradientReady([&](model::Parameter&) { ++ready; });
  parameter.value.sum().backward();
  EXPECT_EQ(ready, 0);
}

// A gradient that is put off is told of when it is there, not by the backward.
TEST(GradientReady, ComesWithTheGradientThatWasPutOff) {
  model::Parameter parameter({5, 3}, {});
  parameter.value = at::ones({5, 3}).requires_grad_(true);
  int told = 0;
  parameter.OnGradientReady([&](model::Parameter& p) {
    ++told;
    EXPECT_TRUE(p.value.grad().defined());
  });
  const auto node = NotifyOnAccumulate(&parameter);
  const at::Tensor x = at::ones({4, 3}).requires_grad_(true);
  model::WeightGradients queue;
  {
    const model::DeferWeightGradients later(&queue);
    model::LinearFunction(x, parameter.value, at::Tensor()).sum().backward();
  }
  EXPECT_EQ(told, 0);
  queue.Compute();
  EXPECT_EQ(told, 1);
}

}  // namespace
}  // namespace legoai::parallel
