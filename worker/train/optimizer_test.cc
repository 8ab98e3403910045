// Adam, AdamW and clipping against the same written out in double precision; SGD and Muon against torch.optim's, as recorded.
#include "worker/train/optimizer.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <sstream>
#include <string>
#include <utility>
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
    const auto optimizer = MakeOptimizer(raw, {}, section);
    for (int step = 1; step <= kSteps; ++step) {
      std::vector<double> gradients;
      double squares = 0;
      for (auto* parameter : raw) {
        parameter->grad = Random(parameter->spec.sizes, random, step == 3 ? 0.01 : 1);  // the third step is not clipped
        for (int64_t i = 0; i < parameter->grad.numel(); ++i) gradients.push_back(parameter->grad.const_data_ptr<float>()[i]);
      }
      for (double gradient : gradients) squares += gradient * gradient;
      const at::Tensor norm = optimizer->GradientNorm(runtime);
      EXPECT_NEAR(*norm.const_data_ptr<float>(), std::sqrt(squares), 1e-5);
      optimizer->Clip(norm, kMaxNorm);
      const double factor = std::min(1.0, kMaxNorm / (std::sqrt(squares) + 1e-6));
      EXPECT_EQ(factor < 1, step != 3);
      optimizer->Update(at::full({}, kLearningRate));
      for (size_t i = 0; i < reference.size(); ++i) reference[i].Update(gradients[i] * factor, step, section);
    }
    size_t i = 0;
    for (auto* parameter : raw) {
      for (int64_t k = 0; k < parameter->master.numel(); ++k) {
        EXPECT_NEAR(parameter->master.const_data_ptr<float>()[k], reference[i++].value, 1e-5);
      }
    }
    EXPECT_EQ(*optimizer->step().const_data_ptr<float>(), kSteps);
  });
}

INSTANTIATE_TEST_SUITE_P(Optimizers, AdamTest, testing::Values("Adam", "AdamW"));

// What testdata/record_optimizers.py wrote of a case: by step and parameter.
struct Recorded {
  std::vector<std::vector<int64_t>> shapes;
  std::map<std::pair<int, size_t>, std::vector<float>> values, gradients;
};

Recorded ReadCase(const std::string& name) {
  std::ifstream file("worker/train/testdata/optimizers.txt");
  Recorded recorded;
  std::string current;
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string kind;
    words >> kind;
    if (kind == "case") words >> current;
    if (kind == "case" || (kind == "value" && current != name)) continue;
    if (kind == "shape") {
      int64_t rows = 0, columns = 0;
      words >> rows >> columns;
      recorded.shapes.push_back({rows, columns});
      continue;
    }
    int step = 0;
    size_t parameter = 0;
    words >> step >> parameter;
    auto& numbers = (kind == "value" ? recorded.values : recorded.gradients)[{step, parameter}];
    for (float number = 0; words >> number;) numbers.push_back(number);
  }
  return recorded;
}

at::Tensor ToTensor(const std::vector<int64_t>& sizes, const std::vector<float>& numbers) {
  at::Tensor tensor = at::empty(sizes);
  std::copy(numbers.begin(), numbers.end(), tensor.mutable_data_ptr<float>());
  return tensor;
}

struct RecordedCase {
  const char* name;
  double weight_decay = 0, momentum = 0;
  bool nesterov = false;
  int64_t iterations = 5;
  const char* adjust = "original";
  bool muon() const { return name[0] == 'm'; }
};

v1::OptimizerSection SectionOf(const RecordedCase& of) {
  v1::OptimizerSection section = parallel::DefaultRecipe().optimizer();
  section.set_name(of.muon() ? "Muon" : "SGD");
  section.set_lr(0.1);
  section.set_weight_decay(of.weight_decay);
  section.set_momentum(of.momentum);
  section.set_nesterov(of.nesterov);
  section.set_muon_ns_steps(of.iterations);
  section.set_muon_adjust_lr_fn(of.adjust);
  return section;
}

class RecordedTest : public testing::TestWithParam<RecordedCase> {};

// Muon's iterations are in bf16, whose products another CPU may add up in another order: an entry of an orthogonal matrix, at most
// about 1, is then off by some 2^-8, and the steps add. On the machine that recorded they are equal to fp32's rounding.
TEST_P(RecordedTest, UpdatesAsTorchOptim) {
  const Recorded recorded = ReadCase(GetParam().name);
  ASSERT_EQ(recorded.shapes.size(), 3u);
  comm::testing::RunRanks({}, [&](int64_t, comm::Runtime&) {
    std::vector<std::unique_ptr<model::Parameter>> parameters;
    std::vector<model::Parameter*> raw;
    for (size_t i = 0; i < recorded.shapes.size(); ++i) {
      parameters.push_back(std::make_unique<model::Parameter>(recorded.shapes[i], model::InitRule{}));
      parameters.back()->master = ToTensor(recorded.shapes[i], recorded.values.at({0, i}));
      raw.push_back(parameters.back().get());
    }
    const auto optimizer = MakeOptimizer(raw, std::set<const model::Parameter*>(raw.begin(), raw.end()), SectionOf(GetParam()));
    EXPECT_EQ(optimizer->state().size(), GetParam().momentum > 0 ? raw.size() : 0);
    double worst = 0;
    for (int step = 1; step <= 4; ++step) {
      for (size_t i = 0; i < raw.size(); ++i) raw[i]->grad = ToTensor(recorded.shapes[i], recorded.gradients.at({step, i}));
      optimizer->Update(at::full({}, 0.1));
      for (size_t i = 0; i < raw.size(); ++i) {
        const auto& expected = recorded.values.at({step, i});
        for (size_t k = 0; k < expected.size(); ++k) {
          const double off = std::abs(raw[i]->master.const_data_ptr<float>()[k] - expected[k]);
          worst = std::max(worst, off);
        }
      }
    }
    EXPECT_LE(worst, GetParam().muon() ? 0.1 * 4 / 256 : 1e-5);
    std::printf("%s: at most %g from torch.optim\n", GetParam().name, worst);
  });
}

INSTANTIATE_TEST_SUITE_P(
    Optimizers, RecordedTest,
    testing::Values(RecordedCase{.name = "sgd"}, RecordedCase{.name = "sgd_decay", .weight_decay = 0.2},
                    RecordedCase{.name = "sgd_momentum", .weight_decay = 0.2, .momentum = 0.9},
                    RecordedCase{.name = "sgd_nesterov", .weight_decay = 0.2, .momentum = 0.8, .nesterov = true},
                    RecordedCase{.name = "muon", .weight_decay = 0.1, .momentum = 0.95, .nesterov = true},
                    RecordedCase{.name = "muon_plain", .momentum = 0.8, .iterations = 3},
                    RecordedCase{
                        .name = "muon_match", .weight_decay = 0.1, .momentum = 0.95, .nesterov = true, .adjust = "match_rms_adamw"}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace legoai::train
