#include "worker/parallel/activation_checkpoint.h"

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/sin.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/engine.h>

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "core/recipe/testing/small_job.h"
#include "core/trace/annotation.h"
#include "worker/comm/cpu_tensors.h"
#include "worker/graph/recorder.h"
#include "worker/model/layers.h"
#include "worker/parallel/testing/tiny_model.h"

namespace legoai::parallel {
namespace {

using at::Tensor;
using testing::MakeTinyModel;

constexpr int64_t kBatch = 2, kSeq = 5;

v1::ActivationCheckpoint Mode(v1::ActivationCheckpointMode mode) {
  v1::ActivationCheckpoint recipe;
  recipe.set_mode(mode);
  return recipe;
}

// A model of one process whose values are its masters.
std::unique_ptr<model::LanguageModel> Make(bool checkpoint, testing::TinyOptions options = {}) {
  at::set_num_threads(1);
  auto model = MakeTinyModel(options);
  testing::FillMasters(*model);
  for (model::Parameter* p : model->Parameters()) p->value = p->master.variable_data().set_requires_grad(true);
  ApplyActivationCheckpoint(*model, Mode(checkpoint ? v1::AC_FULL : v1::AC_NONE));
  return model;
}

Tensor Forward(model::LanguageModel& model, int64_t microbatch) {
  model.context().rng = at::full({2}, 3, at::kLong);
  model.context().samples = at::arange(kBatch, at::kLong) + microbatch * kBatch;
  const Tensor tokens = at::arange(kBatch * kSeq, at::kLong).view({kBatch, kSeq}) % 11;
  return testing::TinyLoss(model(tokens), (tokens * 3 + microbatch) % 11, 0.1);
}

std::vector<Tensor> Gradients(model::LanguageModel& model) {
  std::vector<Tensor> gradients;
  for (model::Parameter* p : model.Parameters()) gradients.push_back(p->value.grad());
  return gradients;
}

// The first of this file: an engine that ran a backward before would have the threads of the GPUs.
TEST(ActivationCheckpoint, ModelsWithAndWithoutItHaveOneEngine) {
  Make(/*checkpoint=*/false);
  const torch::autograd::Engine* const before = &torch::autograd::Engine::get_default_engine();
  const auto model = Make(/*checkpoint=*/true);
  Forward(*model, 0).backward();
  EXPECT_EQ(&torch::autograd::Engine::get_default_engine(), before);
}

TEST(ActivationCheckpoint, GradientsAreThoseOfThePlainModelBitByBit) {
  for (bool tied : {false, true}) {
    auto plain = Make(false, {.tied = tied}), checkpointed = Make(true, {.tied = tied});
    for (auto* model : {plain.get(), checkpointed.get()}) Forward(*model, 0).backward();
    const auto expected = Gradients(*plain), found = Gradients(*checkpointed);
    for (size_t i = 0; i < expected.size(); ++i) {
      EXPECT_TRUE(at::equal(expected[i], found[i])) << plain->Parameters()[i]->name();
    }
  }
}

TEST(ActivationCheckpoint, EachMicrobatchIsRecomputedWithItsOwnContext) {
  auto plain = Make(false), checkpointed = Make(true);
  for (auto* model : {plain.get(), checkpointed.get()}) {
    const Tensor first = Forward(*model, 0), second = Forward(*model, 1), third = Forward(*model, 2);
    const Tensor samples = model->context().samples;
    second.backward();
    first.backward();
    third.backward();
    EXPECT_TRUE(model->context().samples.is_same(samples)) << "the context in force was not put back";
  }
  const auto expected = Gradients(*plain), found = Gradients(*checkpointed);
  for (size_t i = 0; i < expected.size(); ++i) EXPECT_TRUE(at::equal(expected[i], found[i]));
}

TEST(ActivationCheckpoint, ABlockKeepsItsInputOnly) {
  comm::InstallCpuMemoryCounter();
  for (bool checkpoint : {false, true}) {
    auto model = Make(checkpoint);
    model->context().rng = at::full({2}, 3, at::kLong);
    model->context().samples = at::arange(kBatch, at::kLong);
    Tensor x = at::ones({kBatch, kSeq, 6}).set_requires_grad(true);
    const int64_t before = comm::CpuLiveBytes();
    Tensor y = (*model->layers()[1].module)(x);
    const int64_t kept = comm::CpuLiveBytes() - before;
    if (checkpoint) {
      EXPECT_EQ(kept, static_cast<int64_t>(y.nbytes())) << "the output alone: the input was there";
    } else {
      EXPECT_GT(kept, 4 * static_cast<int64_t>(y.nbytes()));
    }
    // Ahead of the recomputation the input's owner may be gone; afterwards nothing is left but gradients.
    const int64_t gradients = static_cast<int64_t>(x.nbytes()) + [&] {
      int64_t bytes = 0;
      for (auto* p : model->layers()[1].module->Parameters()) bytes += static_cast<int64_t>(p->value.nbytes());
      return bytes;
    }();
    const Tensor seed = at::ones_like(y);
    const int64_t seed_bytes = static_cast<int64_t>(seed.nbytes());
    y.backward(seed);
    y.reset();
    EXPECT_EQ(comm::CpuLiveBytes() - before, gradients + seed_bytes);
  }
}

TEST(ActivationCheckpoint, PeakOfADeepModelFalls) {
  comm::InstallCpuMemoryCounter();
  int64_t peaks[2];
  for (bool checkpoint : {false, true}) {
    auto model = Make(checkpoint, {.hidden = 40, .blocks = 12});
    int64_t gradients = 0;
    for (const auto* p : model->Parameters()) gradients += p->value.nbytes();
    const int64_t before = comm::CpuLiveBytes();
    comm::ResetCpuPeakBytes();
    Forward(*model, 0).backward();
    peaks[checkpoint] = comm::CpuPeakBytes() - before - gradients;
  }
  EXPECT_LT(peaks[1], peaks[0] / 2);
}

// Recomputes; counts its forwards, and how often they got to their ends.
class Counted : public model::Module {
 public:
  Counted() {
    weight_ = AddParameter("weight", {4}, {});
    SetPath("counted");
    weight_->value = at::ones({4}).set_requires_grad(true);
    Checkpoint(*this, context_);
  }
  int begun = 0, ended = 0;
  std::vector<graph::Phase> phases;

 protected:
  Tensor Forward(const Tensor& x) override {
    ++begun;
    phases.push_back(graph::CurrentAnnotation().phase);
    Tensor y = at::sin(x * weight_->value);
    y = y + 1;
    ++ended;
    return y;
  }

 private:
  model::StepContext context_;
  model::Parameter* weight_;
};

TEST(ActivationCheckpoint, RecomputationEndsWithTheLastTensorNeeded) {
  Counted module;
  graph::PhaseScope forward(graph::Phase::kForward);
  module(at::ones({4})).sum().backward();
  EXPECT_EQ(module.begun, 2);
  EXPECT_EQ(module.ended, 1);
  EXPECT_EQ(module.phases, (std::vector<graph::Phase>{graph::Phase::kForward, graph::Phase::kRecompute}));
  EXPECT_EQ(graph::CurrentAnnotation().phase, graph::Phase::kForward);
}

// Two linear layers, as a block's end.
class Pair : public model::Module {
 public:
  Pair() {
    first_ = AddChild("first", std::make_unique<model::Linear>(4, 4, false, model::InitRule()));
    second_ = AddChild("second", std::make_unique<model::Linear>(4, 4, false, model::InitRule()));
  }

 protected:
  Tensor Forward(const Tensor& x) override { return x + (*second_)(at::sin((*first_)(x))); }

 private:
  model::Linear *first_, *second_;
};

TEST(ActivationCheckpoint, TheLastProductIsNotComputedAgain) {
  Pair pair;
  pair.SetPath("pair");
  for (model::Parameter* p : pair.Parameters()) p->value = at::ones({4, 4}).set_requires_grad(true);
  model::StepContext context;
  Checkpoint(pair, context);
  graph::Recorder recorder;
  pair(at::ones({2, 3, 4}).set_requires_grad(true)).sum().backward();
  const graph::Trace trace = recorder.Finish();
  int products = 0;
  for (const graph::Instruction& instruction : trace.instructions) {
    products += instruction.kind == graph::Instruction::Kind::kOperator && instruction.phase == graph::Phase::kRecompute &&
                trace.OperatorName(instruction) == "aten::mm";
  }
  EXPECT_EQ(products, 1);
}

TEST(ActivationCheckpoint, WithoutGradientNothingIsKept) {
  Counted module;
  c10::AutoGradMode off(false);
  EXPECT_FALSE(module(at::ones({4})).requires_grad());
  EXPECT_EQ(module.begun, 1);
}

TEST(ActivationCheckpoint, AForwardThatIsDroppedLeavesNothing) {
  comm::InstallCpuMemoryCounter();
  auto model = Make(true);
  Forward(*model, 0);  // makes the scratch that stays
  const int64_t before = comm::CpuLiveBytes();
  for (int i = 0; i < 3; ++i) Forward(*model, 0);
  EXPECT_EQ(comm::CpuLiveBytes(), before);
}

TEST(ActivationCheckpoint, AnInputChangedInPlaceIsRefused) {
  Counted module;
  Tensor x = at::ones({4});
  Tensor loss = module(x).sum();
  x.add_(1);
  EXPECT_THROW(loss.backward(), c10::Error);
}

// Every second block runs twice, the others once.
TEST(ActivationCheckpoint, SelectiveComputesEveryKthBlockAgain) {
  auto model = Make(false, {.blocks = 5});
  v1::ActivationCheckpoint section = Mode(v1::AC_SELECTIVE);
  section.set_selective_ac_option("2");
  std::map<int64_t, int> forwards;
  for (model::Layer& layer : model->layers()) {
    if (layer.kind != model::Layer::Kind::kBlock) continue;
    layer.module->Intercept([&forwards, index = layer.index](const Tensor& input, const model::ForwardFunction& next) {
      ++forwards[index];
      return next(input);
    });
  }
  ApplyActivationCheckpoint(*model, section);
  Forward(*model, 0).sum().backward();
  EXPECT_EQ(forwards, (std::map<int64_t, int>{{0, 1}, {1, 2}, {2, 1}, {3, 2}, {4, 1}}));
}

v1::ActivationCheckpoint Op() {
  v1::ActivationCheckpoint section = Mode(v1::AC_SELECTIVE);
  section.set_selective_ac_option("op");
  return section;
}

TEST(KeptOutputs, GradientsAreThoseOfThePlainModelBitByBit) {
  for (bool tied : {false, true}) {
    auto plain = Make(false, {.tied = tied}), keeping = Make(false, {.tied = tied});
    ApplyActivationCheckpoint(*keeping, Op());
    for (auto* model : {plain.get(), keeping.get()}) {
      const Tensor first = Forward(*model, 0), second = Forward(*model, 1);
      second.backward();
      first.backward();
    }
    const auto expected = Gradients(*plain), found = Gradients(*keeping);
    for (size_t i = 0; i < expected.size(); ++i) {
      EXPECT_TRUE(at::equal(expected[i], found[i])) << plain->Parameters()[i]->name();
    }
  }
}

// Six linear layers in a row, with a sine after each.
class Six : public model::Module {
 public:
  explicit Six(const std::string& policy = kOpPolicy, bool adds_in_place = false,
               const std::vector<KeepPolicy::Shape>& forced = {})
      : adds_in_place_(adds_in_place) {
    for (int i = 0; i < 6; ++i) {
      linears_.push_back(
          AddChild("linear" + std::to_string(i), std::make_unique<model::Linear>(4, 4, i % 3 == 1, model::InitRule())));
    }
    SetPath("six");
    for (model::Parameter* p : Parameters()) p->value = at::full(p->local_shape, 0.1).set_requires_grad(true);
    Checkpoint(*this, context_, std::make_shared<KeepPolicy>(*ParseKeepPolicy(policy), forced));
  }

 protected:
  Tensor Forward(const Tensor& x) override {
    Tensor y = x;
    for (model::Linear* linear : linears_) {
      y = (*linear)(y);
      if (adds_in_place_) y.add_(1);
      y = at::sin(y);
    }
    return y;
  }

 private:
  const bool adds_in_place_;
  model::StepContext context_;
  std::vector<model::Linear*> linears_;
};

std::map<std::string, int> Recomputed(const graph::Trace& trace) {
  std::map<std::string, int> operators;
  for (const graph::Instruction& instruction : trace.instructions) {
    const bool again = instruction.kind == graph::Instruction::Kind::kOperator && instruction.phase == graph::Phase::kRecompute;
    if (again) ++operators[trace.OperatorName(instruction)];
  }
  return operators;
}

std::map<std::string, int> RecomputedBySix(const std::string& policy, const std::vector<KeepPolicy::Shape>& forced = {}) {
  Six six(policy, /*adds_in_place=*/false, forced);
  graph::Recorder recorder;
  six(at::ones({2, 3, 4}).set_requires_grad(true)).sum().backward();
  return Recomputed(recorder.Finish());
}

// Layers 0, 2 and 4 keep their outputs; 1 and 4 have a bias. What the last sine saves is the output of layer 5.
TEST(KeptOutputs, EverySecondProductIsComputedAgain) {
  const auto again = RecomputedBySix(kOpPolicy);
  EXPECT_EQ(again.at("aten::addmm"), 1);
  EXPECT_EQ(again.at("aten::mm"), 2);
  EXPECT_EQ(again.at("aten::sin"), 5);
}

TEST(KeptOutputs, APolicyNamesModulesAndOccurrences) {
  EXPECT_EQ(RecomputedBySix("linear[0-2] aten::mm all").at("aten::mm"), 2) << "3 and 5";
  EXPECT_EQ(RecomputedBySix("* aten::mm 4").at("aten::mm"), 3) << "all but the fourth, 5";
  EXPECT_EQ(RecomputedBySix("linear5 aten::mm 1").at("aten::mm"), 3);
  EXPECT_EQ(RecomputedBySix("linear5 aten::mm 2").at("aten::mm"), 4) << "it has one";
  const auto none = RecomputedBySix("* aten::mm all; linear1 aten::addmm all; linear4 aten::addmm all");
  EXPECT_EQ(none.count("aten::mm") + none.count("aten::addmm"), 0u);
}

TEST(KeptOutputs, ProductsOfForcedShapesAreComputedAgain) {
  EXPECT_EQ(RecomputedBySix(kOpPolicy, {{4, 8}, {8, 4}}), RecomputedBySix(kOpPolicy)) << "there are none";
  const auto again = RecomputedBySix(kOpPolicy, {{4, 8}, {4, 4}});
  EXPECT_EQ(again.at("aten::mm"), 4);
  EXPECT_EQ(again.at("aten::addmm"), 2);
}

// Each makes new outputs and writes to no argument, in all overloads that models call.
TEST(KeptOutputs, WhatMayBeKeptMakesNewOutputs) {
  for (const std::string& name : KeepableOperators()) {
    int overloads = 0;
    for (const c10::OperatorName& op : c10::Dispatcher::singleton().getAllOpNames()) {
      if (op.name != name || op.overload_name.find("out") != std::string::npos) continue;
      ++overloads;
      const c10::FunctionSchema& schema = c10::Dispatcher::singleton().findSchema(op)->schema();
      EXPECT_FALSE(schema.is_mutable()) << op;
      for (const c10::Argument& result : schema.returns()) EXPECT_EQ(result.alias_info(), nullptr) << op;
    }
    EXPECT_GT(overloads, 0) << name;
  }
}

// What a recipe may name are the modules that a block has.
TEST(KeptOutputs, ModulesOfABlockAreThoseOfTheModel) {
  v1::Model gpt2 = testing::SmallLlama(), sides, qwen3 = testing::SmallLlama(), gemma2 = testing::SmallLlama();
  gpt2.set_architecture(v1::GPT2);
  sides = gpt2;
  sides.set_parallel_block(true);
  qwen3.set_architecture(v1::QWEN3);
  qwen3.set_qk_norm(true);
  gemma2.set_architecture(v1::GEMMA2);
  gemma2.set_sliding_window(4);
  gemma2.set_attn_logit_softcapping(50);
  gemma2.set_final_logit_softcapping(30);
  for (const v1::Model& config : {testing::SmallLlama(), gpt2, sides, qwen3, gemma2}) {
    const auto model = model::BuildModel(config);
    ASSERT_TRUE(model.ok()) << model.status();
    const model::Module& block = *(*model)->layers()[1].module;
    std::set<std::string> found;
    const std::function<void(const model::Module&)> visit = [&](const model::Module& module) {
      found.insert(module.path() == block.path() ? "" : module.path().substr(block.path().size() + 1));
      for (const auto& [name, child] : module.children()) visit(*child);
    };
    visit(block);
    const auto said = ModulesOfBlock(config);
    EXPECT_EQ(found, std::set<std::string>(said.begin(), said.end()));
  }
}

TEST(KeptOutputs, LiveUntilTheyAreGivenBack) {
  comm::InstallCpuMemoryCounter();
  const Tensor x = at::ones({2, 3, 4}).set_requires_grad(true);
  Six six;
  const int64_t before = comm::CpuLiveBytes();
  Tensor y = six(x);
  const int64_t one = static_cast<int64_t>(y.nbytes());
  EXPECT_EQ(comm::CpuLiveBytes() - before, one + 3 * one) << "its output, and those of layers 0, 2 and 4";
  y.reset();
  EXPECT_EQ(comm::CpuLiveBytes(), before) << "a forward that is dropped leaves nothing";
}

// The block ends with a product: its output is needed by nobody in the block, and is not kept.
TEST(KeptOutputs, WhatRecomputationDoesNotReachIsNotKept) {
  comm::InstallCpuMemoryCounter();
  const Tensor x = at::ones({2, 3, 4}).set_requires_grad(true);
  model::Linear last(4, 4, false, model::InitRule());
  model::StepContext context;
  Checkpoint(last, context, std::make_shared<KeepPolicy>(*ParseKeepPolicy(kOpPolicy)));
  for (model::Parameter* p : last.Parameters()) p->value = at::ones({4, 4}).set_requires_grad(true);
  const int64_t before = comm::CpuLiveBytes();
  const Tensor y = last(x) * 2;
  EXPECT_EQ(comm::CpuLiveBytes() - before, static_cast<int64_t>(y.nbytes()));
}

TEST(KeptOutputs, OneThatWasWrittenInPlaceIsRefused) {
  Six six(kOpPolicy, /*adds_in_place=*/true);
  const Tensor loss = six(at::ones({2, 3, 4}).set_requires_grad(true)).sum();
  try {
    loss.backward();
    FAIL() << "the output of layer 0 was changed after it was kept";
  } catch (const c10::Error& error) {
    EXPECT_NE(std::string(error.what()).find("six: the output of aten::mm was written in place"), std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace legoai::parallel
