// Adam, AdamW and clipping against the same written out in double precision.
#include "worker/train/optimizer.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <random>
#include <vector>

#include "core/recipe/recipe.h"
#include "worker/comm/testing/process_group_test_util.h"

namespace legoai::train {
namespace {

constexpr double kLearningRate = 0.01, kMaxNorm = 0.5;
constexpr int kSteps = 5;

struct Reference {  // of one element
  double value, m = 0, v = 0;
  void Update(double gradient, int step, const v1::OptimizerSection& section) {
    if (section.name() == "Adam") gradient += section.weight_decay() * value;
    if (section.name() == "AdamW") value -= kLearningRate * section.weight_decay() * value;
    m = section.beta1() * m + (1 - section.beta1()) * gradient;
    v = section.beta2() * v + (1 - section.beta2()) * gradient * gradient;
    const double m_hat = m / (1 - std::pow(section.beta1(), step)), v_hat = v / (1 - std::pow(section.beta2(), step));
    value -= kLearningRate * m_hat / (std::sqrt(v_hat) + section.eps());
  }
};

at::Tensor Random(const std::vector<int64_t>& sizes, std::mt19937& random, double scale) {
  at::Tensor tensor = at::empty(sizes);
  std::normal_distribution<float> normal(0, static_cast<float>(scale));
  for (int64_t i = 0; i < tensor.numel(); ++i) tensor.mutable_data_ptr<float>()[i] = normal(random);
  return tensor;
}

class AdamTest : public testing::TestWithParam<const char*> {};

TEST_P(AdamTest, IsTheFormulaWithClippingByTheGlobalNorm) {
  constexpr unsigned kSeed = 11;
  SCOPED_TRACE(testing::Message() << "seed " << kSeed);
  comm::testing::RunRanks({}, [&](int64_t, comm::Runtime& runtime) {
    std::mt19937 random(kSeed);
    v1::OptimizerSection section = parallel::DefaultRecipe().optimizer();
    section.set_name(GetParam());
    std::vector<std::unique_ptr<model::Parameter>> parameters;
    std::vector<model::Parameter*> raw;
    std::vector<Reference> reference;
    for (const auto& sizes : std::vector<std::vector<int64_t>>{{3, 4}, {7}, {1}}) {
      parameters.push_back(std::make_unique<model::Parameter>(sizes, model::InitRule{}));
      parameters.back()->master = Random(sizes, random, 1);
      raw.push_back(parameters.back().get());
      for (int64_t i = 0; i < raw.back()->master.numel(); ++i)
        reference.push_back({raw.back()->master.const_data_ptr<float>()[i]});
    }
    Adam optimizer(raw, section);
    for (int step = 1; step <= kSteps; ++step) {
      std::vector<double> gradients;
      double squares = 0;
      for (auto* parameter : raw) {
        parameter->grad = Random(parameter->spec.sizes, random, step == 3 ? 0.01 : 1);  // the third step is not clipped
        for (int64_t i = 0; i < parameter->grad.numel(); ++i) gradients.push_back(parameter->grad.const_data_ptr<float>()[i]);
      }
      for (double gradient : gradients) squares += gradient * gradient;
      const at::Tensor norm = optimizer.GradientNorm(runtime);
      EXPECT_NEAR(*norm.const_data_ptr<float>(), std::sqrt(squares), 1e-5);
      optimizer.Clip(norm, kMaxNorm);
      const double factor = std::min(1.0, kMaxNorm / (std::sqrt(squares) + 1e-6));
      EXPECT_EQ(factor < 1, step != 3);
      optimizer.Update(at::full({}, kLearningRate));
      for (size_t i = 0; i < reference.size(); ++i) reference[i].Update(gradients[i] * factor, step, section);
    }
    size_t i = 0;
    for (auto* parameter : raw) {
      for (int64_t k = 0; k < parameter->master.numel(); ++k) {
        EXPECT_NEAR(parameter->master.const_data_ptr<float>()[k], reference[i++].value, 1e-5);
      }
    }
    EXPECT_EQ(*optimizer.step().const_data_ptr<float>(), kSteps);
  });
}

INSTANTIATE_TEST_SUITE_P(Optimizers, AdamTest, testing::Values("Adam", "AdamW"));

}  // namespace
}  // namespace legoai::train
