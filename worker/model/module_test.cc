#include "worker/model/module.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/add.h>
#include <ATen/ops/full.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include "core/trace/annotation.h"

namespace legoai::model {
namespace {

std::vector<std::string>& Visited() {
  static std::vector<std::string> visited;
  return visited;
}

class AddOne : public Module {
 public:
  AddOne() { AddParameter("weight", {2, 3}, {InitRule::Kind::kOnes}); }
  at::Tensor Forward(const at::Tensor& input) override {
    Visited().push_back(*graph::CurrentAnnotation().module);
    return input + 1;
  }
};

class Pair : public Module {
 public:
  Pair() {
    AddParameter("scale", {1}, {});
    first_ = AddChild("first", std::make_unique<AddOne>());
    second_ = AddChild("second", std::make_unique<AddOne>());
  }
  at::Tensor Forward(const at::Tensor& input) override { return (*second_)((*first_)(input)); }
  AddOne *first_, *second_;
};

TEST(ModuleTest, NamesFollowThePath) {
  Pair pair;
  pair.SetPath("model.layers.3");
  ASSERT_NE(pair.Find("second"), nullptr);
  EXPECT_EQ(pair.Find("second")->path(), "model.layers.3.second");
  EXPECT_EQ(pair.Find("third"), nullptr);
  EXPECT_EQ(pair.Find("first.first"), nullptr);
  std::vector<std::string> names;
  for (Parameter* parameter : pair.Parameters()) names.push_back(parameter->name());
  EXPECT_EQ(names,
            (std::vector<std::string>{"model.layers.3.scale", "model.layers.3.first.weight", "model.layers.3.second.weight"}));
  EXPECT_EQ(pair.parameter("scale")->name(), "model.layers.3.scale");
  EXPECT_EQ(pair.parameter("weight"), nullptr);
}

TEST(ModuleTest, AnnotatesThePathAndPutsItBack) {
  Pair pair;
  pair.SetPath("block");
  Visited().clear();
  pair(at::ones({1}));
  EXPECT_EQ(Visited(), (std::vector<std::string>{"block.first", "block.second"}));
  EXPECT_EQ(graph::CurrentAnnotation().module, nullptr);
}

TEST(ModuleTest, TheLastInterceptorIsTheOutermost) {
  Pair pair;
  pair.SetPath("block");
  pair.Intercept([](const at::Tensor& x, const ForwardFunction& next) { return next(x * 10) * 2; });
  pair.Intercept([](const at::Tensor& x, const ForwardFunction& next) { return next(x + 3) + 5; });
  // ((1 + 3) * 10 + 1 + 1) * 2 + 5
  EXPECT_EQ(pair(at::ones({1})).item<float>(), 89);
}

TEST(ModuleTest, RefusesAParameterDeclaredTwice) {
  class Twice : public Module {
   public:
    Twice() {
      AddParameter("weight", {1}, {});
      AddParameter("weight", {1}, {});
    }
    at::Tensor Forward(const at::Tensor& input) override { return input; }
  };
  EXPECT_THROW(Twice(), c10::Error);
}

TEST(GradientReady, ComesOnceWithAllContributions) {
  Parameter parameter({3}, {});
  parameter.value = at::full({3}, 2.0).set_requires_grad(true);
  auto node = NotifyOnAccumulate(&parameter);
  int ready = 0;
  float seen = 0;
  parameter.OnGradientReady([&](Parameter& p) {
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
  Parameter parameter({3}, {});
  parameter.value = at::full({3}, 2.0).set_requires_grad(true);
  NotifyOnAccumulate(&parameter).reset();
  int ready = 0;
  parameter.OnGradientReady([&](Parameter&) { ++ready; });
  parameter.value.sum().backward();
  EXPECT_EQ(ready, 0);
}

}  // namespace
}  // namespace legoai::model
