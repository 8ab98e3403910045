// Adam, AdamW and clipping against the same written out in double precision; SGD, Muon, what is held in bf16 and masters beside
// parameters in bf16 against torch.optim's, as recorded; stochastic rounding by its mean, and by what rounding to the nearest
// loses.
#include "worker/train/optimizer.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
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
      optimizer->Update(at::full({}, kLearningRate), at::zeros({2}, at::kLong), {});
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
  std::map<std::pair<int, size_t>, std::vector<float>> values, masters, gradients;
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
    if (kind == "case" || ((kind == "value" || kind == "master") && current != name)) continue;
    if (kind == "shape") {
      int64_t rows = 0, columns = 0;
      words >> rows >> columns;
      recorded.shapes.push_back({rows, columns});
      continue;
    }
    int step = 0;
    size_t parameter = 0;
    words >> step >> parameter;
    auto& of_kind = kind == "value" ? recorded.values : kind == "master" ? recorded.masters : recorded.gradients;
    auto& numbers = of_kind[{step, parameter}];
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
  std::string optimizer() const {
    const std::string text = name;
    return muon() ? "Muon" : text[0] == 's' ? "SGD" : text.rfind("adamw", 0) == 0 ? "AdamW" : "Adam";
  }
  bool bf16() const { return std::string(name).ends_with("_bf16"); }
  bool masters() const { return std::string(name).ends_with("_masters"); }
  double Tolerance(float expected, int step) const {
    if (bf16()) return optimizer()[0] == 'A' ? 0 : (1 + step) * std::ldexp(1, std::max(0, std::ilogb(expected)) - 7);
    return muon() ? 0.1 * 4 / 256 : 1e-5;
  }
};

v1::OptimizerSection SectionOf(const RecordedCase& of) {
  v1::OptimizerSection section = parallel::DefaultRecipe().optimizer();
  section.set_name(of.optimizer());
  section.set_lr(0.1);
  section.set_weight_decay(of.weight_decay);
  section.set_momentum(of.momentum);
  section.set_nesterov(of.nesterov);
  section.set_muon_ns_steps(of.iterations);
  section.set_muon_adjust_lr_fn(of.adjust);
  section.set_master_weights(of.masters());
  return section;
}

class RecordedTest : public testing::TestWithParam<RecordedCase> {};

// Muon's iterations are in bf16, whose products another CPU may add up in another order: an entry of an orthogonal matrix, at
// most about 1, is then off by some 2^-8, and the steps add. On the machine that recorded they are equal to fp32's rounding.
// Held in bf16, what torch's fused operators update is equal; its Muon and SGD round twice a step where ours round once, so each
// step may add a unit of the last place. With masters it is these that are compared; parameters are no more and no less than
// their rounding.
TEST_P(RecordedTest, UpdatesAsTorchOptim) {
  const Recorded recorded = ReadCase(GetParam().name);
  const bool masters = GetParam().masters();
  const at::ScalarType held_in = GetParam().bf16() || masters ? at::kBFloat16 : at::kFloat;
  const at::ScalarType kept_in = GetParam().bf16() ? at::kBFloat16 : at::kFloat;
  ASSERT_EQ(recorded.shapes.size(), 3u);
  comm::testing::RunRanks({}, [&](int64_t, comm::Runtime&) {
    std::vector<std::unique_ptr<model::Parameter>> parameters;
    std::vector<model::Parameter*> raw;
    for (size_t i = 0; i < recorded.shapes.size(); ++i) {
      parameters.push_back(std::make_unique<model::Parameter>(recorded.shapes[i], model::InitRule{}));
      parameters.back()->master = ToTensor(recorded.shapes[i], recorded.values.at({0, i})).to(held_in);
      raw.push_back(parameters.back().get());
    }
    const auto optimizer = MakeOptimizer(raw, std::set<const model::Parameter*>(raw.begin(), raw.end()), SectionOf(GetParam()));
    const size_t kept = GetParam().optimizer()[0] == 'A' ? 2 : GetParam().momentum > 0 ? 1 : 0;
    EXPECT_EQ(optimizer->state().size(), kept * raw.size());
    for (const HeldTensor& state : optimizer->state()) EXPECT_EQ(state.tensor.scalar_type(), kept_in) << state.name;
    double worst = 0;
    for (int step = 1; step <= 4; ++step) {
      for (size_t i = 0; i < raw.size(); ++i) {
        raw[i]->grad = ToTensor(recorded.shapes[i], recorded.gradients.at({step, i})).to(kept_in).to(at::kFloat);
      }
      optimizer->Update(at::full({}, 0.1), at::zeros({2}, at::kLong), {});
      for (size_t i = 0; i < raw.size(); ++i) {
        const auto& expected = (masters ? recorded.masters : recorded.values).at({step, i});
        const at::Tensor updated = optimizer->masters().at(i).tensor;
        EXPECT_EQ(updated.scalar_type(), kept_in);
        EXPECT_EQ(updated.is_same(raw[i]->master), !masters);
        EXPECT_TRUE(at::equal(updated.to(held_in), raw[i]->master));
        for (size_t k = 0; k < expected.size(); ++k) {
          const double off = std::abs(updated.view(-1)[k].item<float>() - expected[k]);
          EXPECT_LE(off, GetParam().Tolerance(expected[k], step)) << "step " << step << ", parameter " << i << ", element " << k;
          worst = std::max(worst, off);
        }
      }
    }
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
                    RecordedCase{.name = "muon_match",
                                 .weight_decay = 0.1,
                                 .momentum = 0.95,
                                 .nesterov = true,
                                 .adjust = "match_rms_adamw"},
                    RecordedCase{.name = "adam_bf16", .weight_decay = 0.1},
                    RecordedCase{.name = "adamw_bf16", .weight_decay = 0.1},
                    RecordedCase{.name = "sgd_bf16", .weight_decay = 0.2},
                    RecordedCase{.name = "sgd_nesterov_bf16", .weight_decay = 0.2, .momentum = 0.8, .nesterov = true},
                    RecordedCase{.name = "muon_bf16", .weight_decay = 0.1, .momentum = 0.95, .nesterov = true},
                    RecordedCase{.name = "adam_masters", .weight_decay = 0.1},
                    RecordedCase{.name = "adamw_masters", .weight_decay = 0.1},
                    RecordedCase{.name = "sgd_nesterov_masters", .weight_decay = 0.2, .momentum = 0.8, .nesterov = true},
                    RecordedCase{.name = "muon_masters", .weight_decay = 0.1, .momentum = 0.95, .nesterov = true}),
    [](const auto& info) { return info.param.name; });

// One parameter of `sizes`, all ones, held in bf16.
std::unique_ptr<model::Parameter> Ones(const std::vector<int64_t>& sizes, const char* name) {
  auto parameter = std::make_unique<model::Parameter>(sizes, model::InitRule{});
  parameter->spec.name = name;
  parameter->master = at::ones(sizes, at::TensorOptions().dtype(at::kBFloat16));
  return parameter;
}

v1::OptimizerSection RoundedSection(const std::string& name, bool stochastic) {
  v1::OptimizerSection section = parallel::DefaultRecipe().optimizer();
  section.set_name(name);
  section.set_weight_decay(0);
  section.set_stochastic_rounding(stochastic);
  return section;
}

at::Tensor RngOf(int64_t seed, int64_t step) {
  at::Tensor rng = at::empty({2}, at::kLong);
  rng.mutable_data_ptr<int64_t>()[0] = seed;
  rng.mutable_data_ptr<int64_t>()[1] = step;
  return rng;
}

class RoundingTest : public testing::TestWithParam<const char*> {};

// Steps of 1e-4 on numbers of 1, beside which bf16 has one 1/256 below: to the nearest none is ever taken; at random all are, in
// the mean. Muon's steps here are AdamW's, since the parameter is no matrix of a block.
TEST_P(RoundingTest, StochasticUpdatesAreRightInTheMeanWhereNearestOnesVanish) {
  constexpr int kSteps = 40;
  constexpr int64_t kElements = 1 << 16;
  const bool sgd = std::string(GetParam()) == "SGD";
  comm::testing::RunRanks({}, [&](int64_t, comm::Runtime&) {
    for (const bool stochastic : {false, true}) {
      const auto parameter = Ones({kElements}, "w");
      const auto optimizer = MakeOptimizer({parameter.get()}, {}, RoundedSection(GetParam(), stochastic));
      for (int step = 1; step <= kSteps; ++step) {
        parameter->grad = at::ones({kElements});
        optimizer->Update(at::full({}, 1e-4), RngOf(7, step), {});
      }
      const at::Tensor moved = 1 - parameter->master.to(at::kDouble);
      if (!stochastic) {
        EXPECT_EQ(moved.abs().max().item<double>(), 0);
        continue;
      }
      // Adam's step is the learning rate while gradients stay the same. The deviation of a mean of kElements steps of 1/256.
      const double expected = kSteps * 1e-4, deviation = std::sqrt(expected / 256 / kElements);
      EXPECT_NEAR(moved.mean().item<double>(), expected, 6 * deviation) << (sgd ? "SGD" : "Adam");
      EXPECT_GT(at::count_nonzero(moved).item<int64_t>(), kElements / 2);
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Optimizers, RoundingTest, testing::Values("AdamW", "Adam", "SGD", "Muon"));

// Of beta2 = 0.999 the second moment falls by a thousandth a step, which rounding to the nearest takes for nothing.
TEST(RoundingOfState, SecondMomentsDecay) {
  constexpr int kSteps = 100;
  constexpr int64_t kElements = 1 << 14;
  comm::testing::RunRanks({}, [&](int64_t, comm::Runtime&) {
    for (const bool stochastic : {false, true}) {
      const auto parameter = Ones({kElements}, "w");
      v1::OptimizerSection section = RoundedSection("AdamW", stochastic);
      section.set_beta2(0.999);
      const auto optimizer = MakeOptimizer({parameter.get()}, {}, section);
      const at::Tensor second = optimizer->state().at(1).tensor;
      ASSERT_STREQ(optimizer->state().at(1).name, "exp_avg_sq");
      second.fill_(1);
      for (int step = 1; step <= kSteps; ++step) {
        parameter->grad = at::zeros({kElements});
        optimizer->Update(at::zeros({}), RngOf(3, step), {});
      }
      const double mean = second.to(at::kDouble).mean().item<double>(), exact = std::pow(0.999, kSteps);
      if (stochastic) {
        EXPECT_NEAR(mean, exact, 2e-3);
      } else {
        EXPECT_EQ(mean, 1);
      }
    }
  });
}

// What a rank holds of a parameter is rounded as it would be in the whole.
TEST(RoundingOfParts, EqualsThatOfTheWhole) {
  constexpr int64_t kRows = 6, kColumns = 10;
  comm::testing::RunRanks({}, [&](int64_t, comm::Runtime&) {
    for (const char* name : {"AdamW", "SGD"}) {
      v1::OptimizerSection section = RoundedSection(name, true);
      if (section.name() == "SGD") section.set_momentum(0.9);
      const auto run = [&](int64_t row, int64_t rows, int64_t column, int64_t columns) {
        const auto parameter = Ones({rows, columns}, "w");
        parameter->spec.global_shape = {kRows, kColumns};
        parameter->spec.offsets = {row, column};
        const auto optimizer = MakeOptimizer({parameter.get()}, {}, section);
        for (int step = 1; step <= 5; ++step) {
          const at::Tensor whole = at::arange(kRows * kColumns, at::kFloat).view({kRows, kColumns}) * step * 0.01;
          parameter->grad = whole.narrow(0, row, rows).narrow(1, column, columns).contiguous();
          optimizer->Update(at::full({}, 1e-2), RngOf(5, step), {});
        }
        return std::pair(parameter->master, optimizer->state().back().tensor);
      };
      const auto [master, state] = run(0, kRows, 0, kColumns);
      for (const auto& [row, rows, column, columns] :
           std::vector<std::array<int64_t, 4>>{{0, 3, 0, kColumns}, {4, 2, 0, kColumns}, {0, kRows, 3, 7}, {5, 1, 9, 1}}) {
        const auto [part, part_state] = run(row, rows, column, columns);
        EXPECT_TRUE(at::equal(part, master.narrow(0, row, rows).narrow(1, column, columns))) << name << " " << row;
        EXPECT_TRUE(at::equal(part_state, state.narrow(0, row, rows).narrow(1, column, columns))) << name << " " << row;
      }
    }
  });
}

}  // namespace
}  // namespace legoai::train
