#include "worker/parallel/pipeline/stage_runner.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/mean.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>

#include "core/trace/annotation.h"
#include "worker/comm/testing/process_group_test_util.h"
#include "worker/parallel/testing/tiny_job.h"
#include "worker/train/loss.h"

namespace legoai::parallel {
namespace {

using at::Tensor;
using comm::testing::RunRanks;
using testing::kSequence;

constexpr int64_t kRows = 2;  // of a microbatch

struct Case {
  int64_t stages, microbatches;
  v1::PipelineSchedule schedule;
  at::ScalarType dtype = at::kFloat;
  int64_t locals = 1;  // chunks of a rank

  int64_t chunks() const { return stages * locals; }
  Schedule Make() const { return MakeSchedule(schedule, stages, chunks(), microbatches).value(); }
  int64_t RankOfLast() const { return PlacementOf(schedule, stages, chunks()).RankOfLast(); }
};

// One rank's stage of TinyLlama and everything that a step reads.
struct Stage {
  Stage(const Case& c, int64_t rank, StageHooks hooks = {}) : config(testing::TinyLlama()) {
    if (c.locals > 1) config.set_num_hidden_layers(2 * c.chunks() - 1);
    model = testing::Build(config, c.dtype);
    const int64_t blocks = config.num_hidden_layers();
    std::vector<model::ChunkLayers> chunks;
    const Schedule schedule = c.Make();
    for (int64_t local = 0; local < c.locals; ++local) {
      const int64_t chunk = schedule.placement.ChunkOf(rank, local);
      chunks.push_back({chunk == 0, blocks * chunk / c.chunks(), blocks * (chunk + 1) / c.chunks(), chunk + 1 == c.chunks()});
    }
    model->KeepLayers(chunks);
    testing::Fill(model.get(), c.dtype);
    const int64_t rows = kRows * c.microbatches;
    inputs = {testing::Tokens(rows, config.vocab_size(), 1), testing::Tokens(rows, config.vocab_size(), 2), at::arange(rows),
              at::zeros({2}, at::kLong)};
    loss = train::MakeCrossEntropy(1.0 / (rows * kSequence));
    StageOptions options{rank, schedule, c.microbatches, {kRows, kSequence, config.hidden_size()}, c.dtype, {}};
    runner = std::make_unique<StageRunner>(model.get(), loss, options, std::move(hooks));
  }
  v1::Model config;
  std::unique_ptr<model::LanguageModel> model;
  StageInputs inputs;
  LossFunction loss;
  std::unique_ptr<StageRunner> runner;
};

class Pipeline : public ::testing::TestWithParam<Case> {};

// Bit by bit: the same operators on the same values, and gradients are accumulated in microbatch order by all schedules.
TEST_P(Pipeline, EqualsOneProcess) {
  const Case c = GetParam();
  RunRanks({.pp = c.stages}, [c](int64_t rank, comm::Runtime&) {
    Stage stage(c, rank);
    const auto reference =
        testing::RunReference(stage.config, c.dtype, stage.loss, stage.inputs.tokens, stage.inputs.targets, c.microbatches);
    for (int step = 0; step < 2; ++step) {
      const Tensor loss = stage.runner->Run(stage.inputs);
      EXPECT_EQ(loss.item<float>(), rank == c.RankOfLast() ? reference.loss.item<float>() : 0);
      EXPECT_FALSE(loss.requires_grad());
      for (model::Parameter* parameter : stage.model->Parameters()) {
        EXPECT_TRUE(parameter->value.grad().defined()) << parameter->name();
        EXPECT_TRUE(at::equal(parameter->value.grad(), reference.gradients.at(parameter->name()))) << parameter->name();
        parameter->value.mutable_grad().reset();
      }
    }
    return std::string();
  });
}

TEST_P(Pipeline, EvaluatesWithoutGradients) {
  const Case c = GetParam();
  RunRanks({.pp = c.stages}, [c](int64_t rank, comm::Runtime&) {
    Stage stage(c, rank);
    const auto reference =
        testing::RunReference(stage.config, c.dtype, stage.loss, stage.inputs.tokens, stage.inputs.targets, c.microbatches);
    bool training = true;
    stage.model->layers()[0].module->Intercept([&](const Tensor& input, const model::ForwardFunction& next) {
      training = stage.model->context().training;
      EXPECT_FALSE(at::GradMode::is_enabled());
      return next(input);
    });
    const Tensor loss = stage.runner->Evaluate(stage.inputs);
    EXPECT_FALSE(training);
    EXPECT_EQ(loss.item<float>(), rank == c.RankOfLast() ? reference.loss.item<float>() : 0);
    return std::string();
  });
}

INSTANTIATE_TEST_SUITE_P(Cases, Pipeline,
                         ::testing::Values(Case{1, 3, v1::ONE_F_ONE_B}, Case{2, 1, v1::GPIPE}, Case{2, 4, v1::GPIPE},
                                           Case{2, 4, v1::ONE_F_ONE_B}, Case{3, 5, v1::GPIPE}, Case{3, 5, v1::ONE_F_ONE_B},
                                           Case{3, 2, v1::ONE_F_ONE_B}, Case{2, 3, v1::ONE_F_ONE_B, at::kBFloat16},
                                           Case{2, 4, v1::INTERLEAVED_1F1B, at::kFloat, 2},
                                           Case{2, 5, v1::INTERLEAVED_1F1B, at::kFloat, 3},
                                           Case{3, 1, v1::INTERLEAVED_1F1B, at::kFloat, 2},
                                           Case{3, 7, v1::INTERLEAVED_1F1B, at::kBFloat16, 2},
                                           Case{2, 4, v1::LOOPED_BFS, at::kFloat, 2}, Case{3, 5, v1::LOOPED_BFS, at::kFloat, 3},
                                           Case{2, 1, v1::ZBV_ZERO_BUBBLE, at::kFloat, 2},
                                           Case{2, 5, v1::ZBV_ZERO_BUBBLE, at::kFloat, 2},
                                           Case{3, 7, v1::ZBV_ZERO_BUBBLE, at::kBFloat16, 2},
                                           Case{4, 9, v1::ZBV_ZERO_BUBBLE, at::kFloat, 2},
                                           Case{2, 6, v1::DUALPIPE_V, at::kFloat, 2}, Case{3, 8, v1::DUALPIPE_V, at::kFloat, 2}),
                         [](const auto& info) {
                           return v1::PipelineSchedule_Name(info.param.schedule) + "_" + std::to_string(info.param.stages) +
                                  "_stages_" + std::to_string(info.param.microbatches) +
                                  (info.param.dtype == at::kFloat ? "_fp32" : "_bf16");
                         });

// What a block gives is kept by the next block for backward, so the storages of a stage's block that are alive count the
// microbatches under way.
TEST(PipelineMemory, KeepsNoMoreMicrobatchesThanTheScheduleSays) {
  for (v1::PipelineSchedule schedule : {v1::GPIPE, v1::ONE_F_ONE_B}) {
    const Case c{2, 6, schedule};
    RunRanks({.pp = c.stages}, [c](int64_t rank, comm::Runtime&) {
      Stage stage(c, rank);
      std::vector<c10::weak_intrusive_ptr<c10::StorageImpl>> seen;
      int64_t most = 0;
      const auto alive = [&] {
        return std::count_if(seen.begin(), seen.end(), [](const auto& storage) { return !storage.expired(); });
      };
      stage.model->layers()[rank == 0 ? 1 : 0].module->Intercept([&](const Tensor& input, const model::ForwardFunction& next) {
        const Tensor output = next(input);
        seen.push_back(output.storage().getWeakStorageImpl());
        most = std::max<int64_t>(most, alive());
        return output;
      });
      stage.runner->Run(stage.inputs);
      EXPECT_EQ(seen.size(), c.microbatches);
      EXPECT_EQ(most, c.schedule == v1::GPIPE ? c.microbatches : c.stages - rank);
      EXPECT_EQ(alive(), 0);
      return std::string();
    });
  }
}

TEST(PipelineHooks, SayWhichBackwardReducesAndWhatRunsNow) {
  const Case c{2, 3, v1::ONE_F_ONE_B};
  RunRanks({.pp = c.stages}, [c](int64_t rank, comm::Runtime&) {
    std::vector<std::string> calls;
    StageHooks hooks;
    hooks.before_backward = [&](size_t, bool reduce, model::Gradients gradients) {
      EXPECT_EQ(gradients, model::Gradients::kAll);
      const graph::Annotation& now = graph::CurrentAnnotation();
      EXPECT_EQ(now.phase, graph::Phase::kBackward);
      EXPECT_GE(now.action, 0);
      calls.push_back("B" + std::to_string(now.microbatch) + (reduce ? "!" : ""));
    };
    hooks.after_backward = [&](size_t, bool last, model::Gradients) {
      if (last) calls.push_back("end");
    };
    Stage stage(c, rank, hooks);
    stage.model->layers()[0].module->Intercept([&](const Tensor& input, const model::ForwardFunction& next) {
      const graph::Annotation& now = graph::CurrentAnnotation();
      EXPECT_EQ(now.phase, graph::Phase::kForward);
      // The samples are those of the microbatch.
      EXPECT_TRUE(at::equal(stage.model->context().samples, at::arange(kRows) + now.microbatch * kRows));
      EXPECT_TRUE(stage.model->context().training);
      return next(input);
    });
    stage.runner->Run(stage.inputs);
    EXPECT_EQ(calls, (std::vector<std::string>{"B0", "B1", "B2!", "end"}));
    EXPECT_EQ(graph::CurrentAnnotation().action, -1);
    return std::string();
  });
}

// Each block adds the mean square of what it gives, as a router would.
void AddAuxiliaryLosses(model::LanguageModel* model) {
  for (model::Layer& layer : model->layers()) {
    if (layer.kind != model::Layer::Kind::kBlock) continue;
    layer.module->Intercept([model](const Tensor& input, const model::ForwardFunction& next) {
      const Tensor output = next(input);
      model->context().auxiliary_losses.push_back(at::mul(at::mul(output, output).mean(), 0.01));
      return output;
    });
  }
}

TEST(PipelineAuxiliaryLosses, HaveTheirGradientsOnEveryStage) {
  const Case c{2, 3, v1::ONE_F_ONE_B};
  RunRanks({.pp = c.stages}, [c](int64_t rank, comm::Runtime&) {
    Stage plain({1, c.microbatches, c.schedule}, 0), whole({1, c.microbatches, c.schedule}, 0), part(c, rank);
    AddAuxiliaryLosses(whole.model.get());
    AddAuxiliaryLosses(part.model.get());
    plain.runner->Run(plain.inputs);
    const Tensor loss = whole.runner->Run(whole.inputs);
    const Tensor of_part = part.runner->Run(part.inputs);
    if (rank + 1 == c.stages) {
      EXPECT_EQ(of_part.item<float>(), loss.item<float>()) << "what is told has no auxiliary loss";
    }
    std::map<std::string, Tensor> expected, without;
    for (model::Parameter* parameter : whole.model->Parameters()) expected[parameter->name()] = parameter->value.grad();
    for (model::Parameter* parameter : plain.model->Parameters()) without[parameter->name()] = parameter->value.grad();
    for (model::Parameter* parameter : part.model->Parameters()) {
      const Tensor& gradient = parameter->value.grad();
      EXPECT_TRUE(at::allclose(gradient, expected.at(parameter->name()), 1e-5, 1e-7)) << parameter->name();
      const bool behind = parameter->name() == "model.norm.weight" || parameter->name() == "lm_head.weight";
      EXPECT_EQ(at::equal(gradient, without.at(parameter->name())), behind) << parameter->name();
    }
    EXPECT_TRUE(part.model->context().auxiliary_losses.empty());
    return std::string();
  });
}

TEST(PipelineHooks, SayWhichChunkRunsAndEndEachOfThem) {
  const Case c{2, 2, v1::INTERLEAVED_1F1B, at::kFloat, 2};
  RunRanks({.pp = c.stages}, [c](int64_t rank, comm::Runtime&) {
    std::vector<std::string> calls;
    StageHooks hooks;
    hooks.before_backward = [&](size_t chunk, bool reduce, model::Gradients) {
      calls.push_back(std::to_string(chunk) + (reduce ? "!" : ""));
    };
    hooks.after_backward = [&](size_t, bool last, model::Gradients) {
      if (last) calls.push_back("end");
    };
    Stage stage(c, rank, hooks);
    EXPECT_EQ(stage.model->chunks().size(), 2);
    stage.runner->Run(stage.inputs);
    EXPECT_EQ(calls, (std::vector<std::string>{"1", "1!", "end", "0", "0!", "end"}));
    return std::string();
  });
}

TEST(PipelineErrors, UnsoundSchedulesAreRefused) {
  RunRanks({.pp = 1}, [](int64_t rank, comm::Runtime&) {
    Stage stage({1, 2, v1::ONE_F_ONE_B}, rank);
    StageOptions options{rank, MakeSchedule(v1::ONE_F_ONE_B, 1, 1, 2).value(), 2, {kRows, kSequence, 16}, at::kFloat, {}};
    options.schedule.ranks[0].pop_back();
    EXPECT_THROW(StageRunner(stage.model.get(), stage.loss, options, {}), c10::Error);
    options.schedule = MakeSchedule(v1::ZBV_ZERO_BUBBLE, 2, 4, 2).value();
    EXPECT_THROW(StageRunner(stage.model.get(), stage.loss, options, {}), c10::Error);
    return std::string();
  });
}

TEST(PipelineErrors, WrongSizesAreRefused) {
  RunRanks({.pp = 1}, [](int64_t rank, comm::Runtime&) {
    Stage stage({1, 2, v1::ONE_F_ONE_B}, rank);
    stage.inputs.tokens = stage.inputs.tokens.narrow(0, 0, 3);
    EXPECT_THROW(stage.runner->Run(stage.inputs), c10::Error);
    return std::string();
  });
}

}  // namespace
}  // namespace legoai::parallel
