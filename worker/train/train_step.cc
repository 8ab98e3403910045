#include "worker/train/train_step.h"

#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include <utility>

#include "core/recipe/recipe.h"
#include "core/trace/annotation.h"
#include "proto/status.h"
#include "worker/comm/ops.h"
#include "worker/comm/status_error.h"
#include "worker/comm/step_timeline.h"
#include "worker/parallel/loss_parallel.h"
#include "worker/parallel/parallelize.h"
#include "worker/parallel/pipeline/stage_runner.h"
#include "worker/parallel/tensor_parallel.h"
#include "worker/train/loss.h"
#include "worker/train/optimizer.h"

namespace legoai::train {
namespace {

bool IsApart(const HeldTensor& master) { return !master.tensor.is_same(master.parameter->master); }

}  // namespace

struct TrainStep::Impl {
  v1::Recipe recipe;
  comm::Runtime& runtime;
  parallel::ParallelizedModel parallelized;
  std::unique_ptr<parallel::StageRunner> runner;
  std::unique_ptr<Optimizer> optimizer;
  StepInputs inputs;

  explicit Impl(comm::Runtime& current) : runtime(current) {}

  // Forward and backward of all microbatches; every Parameter::grad valid. Gives the mean loss over the global batch.
  at::Tensor ForwardBackward() {
    at::Tensor loss = runner->Run({inputs.tokens, inputs.targets, inputs.samples, inputs.rng});
    c10::NoGradGuard no_grad;
    graph::PhaseScope phase(graph::Phase::kBackward);
    const auto timed = comm::TimelineScope::Phase(graph::Phase::kBackward);
    parallelized.data_parallel->FinishBackward();
    SumTiedGradients();
    if (optimizer->loss_scale() != nullptr) optimizer->Unscale();
    return SumOverRanks(std::move(loss));
  }

  // The head's part of the gradient may be on the last pipeline rank, the embedding's on the first.
  void SumTiedGradients() {
    for (model::Parameter* parameter : parallelized.model->Parameters()) {
      const parallel::ShardSpec& spec = parameter->spec;
      if (spec.on_both_ends && spec.Elements() > 0) comm::AllReduce(parameter->grad, runtime.GroupId(mesh::Dim::kPpEnds));
    }
  }

  // Every rank that sees other tokens holds its part of the mean, and only the rank of the last chunk holds any.
  at::Tensor SumOverRanks(at::Tensor loss) {
    for (const mesh::Dim dim : {mesh::Dim::kDpCp, mesh::Dim::kPp}) {
      const int64_t group = runtime.GroupId(dim);
      if (runtime.GroupSize(group) > 1) comm::AllReduce(loss, group);
    }
    return loss;
  }

  at::Tensor Update() {
    c10::NoGradGuard no_grad;
    graph::PhaseScope phase(graph::Phase::kOptimizer);
    at::Tensor norm = optimizer->GradientNorm(runtime);
    if (recipe.training().max_norm() > 0) optimizer->Clip(norm, recipe.training().max_norm());
    optimizer->Update(inputs.learning_rate, inputs.rng, norm);
    parallelized.data_parallel->GatherUpdated();
    return norm;
  }

  void MakeInputs(const parallel::ResolvedRecipe& resolved, c10::Device device) {
    graph::CategoryScope category(graph::Category::kInput);
    const auto options = at::TensorOptions().device(device).dtype(at::kLong);
    const int64_t rows = resolved.accumulation() * resolved.local_batch();
    const int64_t seq = resolved.seq_len() / resolved.mesh().cp;
    inputs.tokens = at::zeros({rows, seq}, options);
    inputs.targets = at::zeros({rows, seq}, options);
    inputs.samples = at::zeros({rows}, options);
    inputs.rng = at::zeros({2}, options);
    inputs.learning_rate = at::zeros({}, options.dtype(at::kFloat));
  }

  parallel::LossFunction MakeLoss(const parallel::ResolvedRecipe& resolved) const {
    const double scale = 1.0 / static_cast<double>(resolved.tokens_per_step());
    if (!resolved.loss_parallel()) return MakeCrossEntropy(scale);
    const int64_t group = runtime.GroupId(mesh::Dim::kTp), vocab = parallelized.model->config().vocab_size();
    return parallel::MakeLossParallel(scale, parallel::VocabularyOffset(vocab, resolved.mesh().tp, runtime.GroupRank(group)),
                                      group);
  }

  void MakeRunner(const parallel::ResolvedRecipe& resolved, c10::Device device) {
    parallel::StageOptions options;
    options.rank = resolved.mesh().IndexOf(mesh::Dim::kPp, runtime.rank());
    options.schedule = resolved.MakeSchedule();
    options.microbatches = resolved.microbatches();
    const int64_t of_tensor = parallel::SplitsTokens(resolved.recipe().parallelism()) ? resolved.mesh().tp : 1;
    options.activation_sizes = {resolved.microbatch_size(), resolved.seq_len() / (resolved.mesh().cp * of_tensor),
                                parallelized.model->config().hidden_size()};
    options.activation = at::TensorOptions().device(device).dtype(parallelized.precision.param);
    if (optimizer->loss_scale() != nullptr) options.loss_scale = optimizer->loss_scale()->scale();
    parallel::DataParallel* data_parallel = parallelized.data_parallel.get();
    parallel::StageHooks hooks;
    hooks.before_backward = [=](size_t chunk, bool last, auto part) { data_parallel->BeginBackward(last, chunk, part); };
    hooks.after_backward = [=](size_t chunk, bool last, auto part) { data_parallel->EndBackward(last, chunk, part); };
    runner = std::make_unique<parallel::StageRunner>(parallelized.model.get(), MakeLoss(resolved), options, hooks);
  }

  absl::Status Build(const parallel::ResolvedRecipe& resolved, c10::Device device, bool materialize) {
    recipe = resolved.recipe();
    ASSIGN_OR_RETURN(auto model, model::BuildModel(resolved.model()));
    ASSIGN_OR_RETURN(parallelized, parallel::Parallelize(std::move(model), resolved));
    parallel::Materialize(parallelized, device, recipe.training().seed(), materialize);
    c10::NoGradGuard no_grad;
    model::LanguageModel& layers = *parallelized.model;
    optimizer = MakeOptimizer(layers.Parameters(), HiddenMatrices(layers), recipe.optimizer());
    for (const HeldTensor& master : optimizer->masters()) {
      if (materialize && IsApart(master)) parallel::Initialize(*master.parameter, recipe.training().seed(), master.tensor);
    }
    if (parallelized.precision.param == at::kHalf) {
      optimizer->SetLossScale(std::make_unique<LossScale>(recipe.training(), device));
    }
    MakeInputs(resolved, device);
    MakeRunner(resolved, device);
    return absl::OkStatus();
  }

  std::vector<NamedTensor> State() {
    std::vector<NamedTensor> state;
    auto add = [&](std::string name, const at::Tensor& tensor, graph::Category category) {
      state.push_back({std::move(name), tensor, category});
    };
    for (auto& tensor : parallelized.data_parallel->State()) add(tensor.name, tensor.tensor, tensor.category);
    for (auto& [name, tensor] : parallelized.model->Buffers()) add(name, tensor, graph::Category::kBuffer);
    for (const HeldTensor& master : optimizer->masters()) {
      if (IsApart(master)) add(master.parameter->name() + ".master", master.tensor, graph::Category::kOptimizerState);
    }
    for (const HeldTensor& kept : optimizer->state()) {
      add(kept.parameter->name() + "." + kept.name, kept.tensor, graph::Category::kOptimizerState);
    }
    for (auto& [name, tensor] : optimizer->Counters()) add(name, tensor, graph::Category::kOptimizerState);
    add("input.tokens", inputs.tokens, graph::Category::kInput);
    add("input.targets", inputs.targets, graph::Category::kInput);
    add("input.samples", inputs.samples, graph::Category::kInput);
    add("input.rng", inputs.rng, graph::Category::kInput);
    add("input.learning_rate", inputs.learning_rate, graph::Category::kInput);
    return state;
  }
};

TrainStep::TrainStep(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
TrainStep::~TrainStep() = default;

absl::StatusOr<std::unique_ptr<TrainStep>> TrainStep::Build(const parallel::ResolvedRecipe& resolved, c10::Device device,
                                                            bool materialize) {
  std::unique_ptr<Impl> impl;
  RETURN_IF_ERROR(comm::CatchStatus([&] {
    impl = std::make_unique<Impl>(comm::CurrentRuntime());
    return impl->Build(resolved, device, materialize);
  }));
  return std::unique_ptr<TrainStep>(new TrainStep(std::move(impl)));
}

StepInputs& TrainStep::inputs() { return impl_->inputs; }
model::LanguageModel& TrainStep::model() { return *impl_->parallelized.model; }
Optimizer& TrainStep::optimizer() { return *impl_->optimizer; }
std::vector<NamedTensor> TrainStep::State() { return impl_->State(); }

void TrainStep::PerformOnly(std::vector<parallel::LoweredAction> actions) { impl_->runner->PerformOnly(std::move(actions)); }

absl::Status TrainStep::GatherParameters() {
  return comm::CatchStatus([&] {
    impl_->parallelized.data_parallel->GatherAtFirst();
    return impl_->runtime.Drain();
  });
}

absl::StatusOr<TrainStep::Result> TrainStep::Run() {
  Result result;
  RETURN_IF_ERROR(comm::CatchStatus([&] {
    result.loss = impl_->ForwardBackward();
    const auto timed = comm::TimelineScope::Phase(graph::Phase::kOptimizer);  // with the end of what it has gathered
    result.grad_norm = impl_->Update();
    impl_->parallelized.data_parallel->ReleaseGradients();
    return impl_->runtime.Drain();
  }));
  return result;
}

absl::StatusOr<at::Tensor> TrainStep::ForwardBackward() {
  at::Tensor loss;
  RETURN_IF_ERROR(comm::CatchStatus([&] {
    loss = impl_->ForwardBackward();
    return impl_->runtime.Drain();
  }));
  return loss;
}

void TrainStep::ReleaseGradients() { impl_->parallelized.data_parallel->ReleaseGradients(); }

absl::StatusOr<at::Tensor> TrainStep::Evaluate() {
  at::Tensor loss;
  RETURN_IF_ERROR(comm::CatchStatus([&] {
    const StepInputs& inputs = impl_->inputs;
    loss = impl_->SumOverRanks(impl_->runner->Evaluate({inputs.tokens, inputs.targets, inputs.samples, inputs.rng}));
    return impl_->runtime.Drain();
  }));
  return loss;
}

}  // namespace legoai::train
