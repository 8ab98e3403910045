// The scale against ATen's own kernel of torch.amp.GradScaler over random good and bad steps, and training with it against what
// GradScaler and torch.optim did with the same gradients, as recorded.
#include "worker/train/loss_scale.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <limits>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "core/recipe/recipe.h"
#include "proto/errors.h"
#include "worker/comm/testing/process_group_test_util.h"
#include "worker/train/optimizer.h"

namespace legoai::train {
namespace {

using ::testing::HasSubstr;

v1::Training Scaled(double initial, int64_t interval) {
  v1::Training training = parallel::DefaultRecipe().training();
  training.set_initial_loss_scale(initial);
  training.set_loss_scale_growth_interval(interval);
  return training;
}

TEST(LossScale, IsThatOfGradScaler) {
  constexpr unsigned kSeed = 5;
  SCOPED_TRACE(testing::Message() << "seed " << kSeed);
  constexpr float kInfinity = std::numeric_limits<float>::infinity(), kNan = std::numeric_limits<float>::quiet_NaN();
  std::mt19937 random(kSeed);
  for (const double initial : {1048576.0, 3.0, 0x1.8p126}) {  // the last soon cannot double any more
    for (const int64_t interval : {1, 2, 7}) {
      LossScale scale(Scaled(initial, interval), at::kCPU);
      at::Tensor expected = at::full({}, initial, at::kFloat), tracker = at::zeros({}, at::kInt);
      int64_t bad = 0;
      for (int step = 0; step < 200; ++step) {
        const bool is_bad = random() % (2 * interval) == 0;
        const float norm = !is_bad ? 3.5f : random() % 2 == 0 ? kInfinity : kNan;
        const at::Tensor found = LossScale::IsBad(at::full({}, norm));
        EXPECT_EQ(found.item<float>(), is_bad ? 1 : 0);
        scale.Update(found);
        at::_amp_update_scale_(expected, tracker, found, 2.0, 0.5, interval);
        ASSERT_EQ(scale.scale().item<float>(), expected.item<float>()) << step;
        ASSERT_EQ(scale.good_steps().item<float>(), static_cast<float>(tracker.item<int>())) << step;
        bad += is_bad;
      }
      EXPECT_GT(bad, 5);
    }
  }
}

TEST(LossScale, WhatNoScaleMendsIsAnError) {
  EXPECT_TRUE(CheckSkippedStep(2.5, 1, 3).ok());
  for (const auto& [loss, scale, what] :
       {std::tuple{2.5, 0.5, "after step 31 the loss scale is 0.5"},
        std::tuple{std::nan(""), 1024.0, "in step 31 the loss is nan: activations exceed float16's 65504"}}) {
    const auto violation = GetFieldViolation(CheckSkippedStep(loss, scale, 31));
    ASSERT_TRUE(violation);
    EXPECT_EQ(violation->field(), "training.mixed_precision_param");
    EXPECT_THAT(violation->remedy(), HasSubstr(what));
    EXPECT_THAT(violation->remedy(), HasSubstr("use \"bfloat16\""));
  }
}

// What testdata/record_grad_scaler.py wrote.
struct Recorded {
  struct Bad {
    size_t parameter = 0;
    int64_t element = 0;
    std::string number;
  };
  using Numbers = std::map<std::pair<int, size_t>, std::vector<float>>;  // by step and parameter
  std::vector<std::vector<int64_t>> shapes;
  Numbers gradients;
  std::map<int, Bad> bad;
  std::map<std::string, Numbers> values;               // by case
  std::map<std::string, std::map<int, float>> scales;  // by case and step
};

Recorded Read() {
  std::ifstream file("worker/train/testdata/grad_scaler.txt");
  Recorded recorded;
  std::string name;
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string kind;
    int step = 0;
    size_t parameter = 0;
    words >> kind;
    if (kind == "case") {
      words >> name;
    } else if (kind == "shape") {
      int64_t rows = 0, columns = 0;
      words >> rows >> columns;
      recorded.shapes.push_back({rows, columns});
    } else if (kind == "scale") {
      words >> step >> recorded.scales[name][step];
    } else if (kind == "bad") {
      words >> step;
      Recorded::Bad& bad = recorded.bad[step];
      words >> bad.parameter >> bad.element >> bad.number;
    } else {
      words >> step >> parameter;
      auto& numbers = (kind == "value" ? recorded.values[name] : recorded.gradients)[{step, parameter}];
      for (float number = 0; words >> number;) numbers.push_back(number);
    }
  }
  return recorded;
}

at::Tensor ToTensor(const std::vector<int64_t>& sizes, const std::vector<float>& numbers) {
  return at::tensor(numbers).view(sizes).clone();
}

class RecordedTest : public testing::TestWithParam<const char*> {};

// Copies of all that a step may change, but for the scale.
std::vector<at::Tensor> StateOf(const Optimizer& optimizer) {
  std::vector<at::Tensor> state = {optimizer.step().clone()};
  for (const model::Parameter* parameter : optimizer.parameters()) state.push_back(parameter->master.clone());
  for (const HeldTensor& kept : optimizer.state()) state.push_back(kept.tensor.clone());
  return state;
}

void Train(const Recorded& recorded, const std::string& name, comm::Runtime& runtime) {
  constexpr int kSteps = 14;
  std::vector<std::unique_ptr<model::Parameter>> parameters;
  std::vector<model::Parameter*> raw;
  for (size_t i = 0; i < recorded.shapes.size(); ++i) {
    parameters.push_back(std::make_unique<model::Parameter>(recorded.shapes[i], model::InitRule{}));
    parameters.back()->master = ToTensor(recorded.shapes[i], recorded.values.at(name).at({0, i}));
    raw.push_back(parameters.back().get());
  }
  v1::OptimizerSection section = parallel::DefaultRecipe().optimizer();
  section.set_name(name);
  section.set_lr(0.1);
  section.set_weight_decay(0.1);
  section.set_momentum(name == "Muon" ? 0.95 : 0.9);
  section.set_nesterov(true);
  const auto optimizer = MakeOptimizer(raw, std::set<const model::Parameter*>(raw.begin(), raw.end()), section);
  optimizer->SetLossScale(std::make_unique<LossScale>(Scaled(recorded.scales.at(name).at(0), 3), at::kCPU));
  const double tolerance = name == "Muon" ? 0.1 * 4 / 256 : 1e-5;  // Muon orthogonalizes in bf16 (optimizer_test.cc)
  for (int step = 1; step <= kSteps; ++step) {
    SCOPED_TRACE(testing::Message() << name << " step " << step);
    const auto bad = recorded.bad.find(step);
    const auto before = StateOf(*optimizer);
    for (size_t i = 0; i < raw.size(); ++i) {
      raw[i]->grad = ToTensor(recorded.shapes[i], recorded.gradients.at({step, i})) * optimizer->loss_scale()->scale();
      if (bad != recorded.bad.end() && bad->second.parameter == i) {
        raw[i]->grad.view(-1)[bad->second.element].fill_(std::stof(bad->second.number));
      }
    }
    optimizer->Unscale();
    const at::Tensor norm = optimizer->GradientNorm(runtime);
    optimizer->Clip(norm, 1.0);
    optimizer->Update(at::full({}, 0.1), at::zeros({2}, at::kLong), norm);
    EXPECT_EQ(optimizer->loss_scale()->scale().item<float>(), recorded.scales.at(name).at(step));
    const auto after = StateOf(*optimizer);
    for (size_t i = 0; i < after.size(); ++i) EXPECT_EQ(at::equal(after[i], before[i]), bad != recorded.bad.end()) << i;
    for (size_t i = 0; i < raw.size(); ++i) {
      const at::Tensor expected = ToTensor(recorded.shapes[i], recorded.values.at(name).at({step, i}));
      EXPECT_LE((raw[i]->master - expected).abs().max().item<double>(), tolerance) << "parameter " << i;
    }
  }
  EXPECT_EQ(optimizer->step().item<float>(), static_cast<float>(kSteps - recorded.bad.size()));
}

TEST_P(RecordedTest, TrainsAsGradScaler) {
  const Recorded recorded = Read();
  ASSERT_EQ(recorded.shapes.size(), 2u);
  ASSERT_EQ(recorded.bad.size(), 5u);
  comm::testing::RunRanks({}, [&](int64_t, comm::Runtime& runtime) { Train(recorded, GetParam(), runtime); });
}

// One rank's gradient alone is not finite, whichever rank and however the ranks share parameters: all of them skip the step.
TEST(LossScale, RanksAgree) {
  for (const mesh::Mesh& mesh : {mesh::Mesh{.dp_shard = 2}, mesh::Mesh{.cp = 2}, mesh::Mesh{.tp = 2}, mesh::Mesh{.pp = 2},
                                 mesh::Mesh{.pp = 2, .dp_shard = 2, .tp = 2}}) {
    comm::testing::RunRanks(mesh, [&](int64_t rank, comm::Runtime& runtime) {
      for (int64_t bad = 0; bad < mesh.world(); ++bad) {
        model::Parameter parameter({8, 8}, model::InitRule{});
        for (const auto& [dim, over] : {std::pair{0, mesh::Dim::kDpShardCp}, {1, mesh::Dim::kTp}}) {
          const int64_t group = runtime.GroupId(over);
          parallel::Cut(&parameter.spec, dim, runtime.GroupSize(group), runtime.GroupRank(group), over);
        }
        parameter.master = at::ones(parameter.spec.sizes);
        const auto optimizer = MakeOptimizer({&parameter}, {}, parallel::DefaultRecipe().optimizer());
        optimizer->SetLossScale(std::make_unique<LossScale>(Scaled(8, 2), at::kCPU));
        parameter.grad = at::ones(parameter.spec.sizes);
        if (rank == bad) parameter.grad.view(-1)[3].fill_(std::numeric_limits<float>::infinity());
        optimizer->Unscale();
        optimizer->Update(at::full({}, 0.1), at::zeros({2}, at::kLong), optimizer->GradientNorm(runtime));
        EXPECT_EQ(optimizer->loss_scale()->scale().item<float>(), 4) << "rank " << rank << ", bad " << bad;
        EXPECT_EQ(optimizer->step().item<float>(), 0);
        EXPECT_TRUE(at::equal(parameter.master, at::ones(parameter.spec.sizes)));
      }
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Optimizers, RecordedTest, testing::Values("Adam", "AdamW", "SGD", "Muon"));

}  // namespace
}  // namespace legoai::train
