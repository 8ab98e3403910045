#include "worker/parallel/pipeline/stage_runner.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/variable.h>

#include <string>
#include <utility>

#include "core/trace/annotation.h"
#include "worker/comm/ops.h"
#include "worker/comm/step_timeline.h"

namespace legoai::parallel {
namespace {

using at::Tensor;
using model::Gradients;
using Kind = LoweredAction::Kind;

// Of activations, so of memory born for them, or of their gradients.
graph::Phase PhaseOf(const LoweredAction& action) {
  switch (action.kind) {
    case Kind::kForward: return graph::Phase::kForward;
    case Kind::kBackward:
    case Kind::kInputGradient:
    case Kind::kWeightGradient: return graph::Phase::kBackward;
    default: break;
  }
  const bool activations = action.link == Link::kSendNext || action.link == Link::kReceivePrevious;
  return activations ? graph::Phase::kForward : graph::Phase::kBackward;
}

Gradients GradientsOf(Kind kind) {
  return kind == Kind::kInputGradient    ? Gradients::kInputs
         : kind == Kind::kWeightGradient ? Gradients::kWeights
                                         : Gradients::kAll;
}

Tensor Rows(const Tensor& tensor, int64_t microbatch, int64_t microbatches) {
  const int64_t rows = tensor.size(0) / microbatches;
  return tensor.narrow(0, microbatch * rows, rows);
}

}  // namespace

StageRunner::StageRunner(model::LanguageModel* model, LossFunction loss, StageOptions options, StageHooks hooks)
    : model_(model), loss_(std::move(loss)), options_(std::move(options)), hooks_(std::move(hooks)) {
  TORCH_CHECK(placement().locals() == static_cast<int64_t>(model_->chunks().size()), "the schedule has ", placement().locals(),
              " chunks a rank, the model ", model_->chunks().size());
  const absl::Status sound = CheckSchedule(options_.schedule, options_.microbatches);
  TORCH_CHECK(sound.ok(), std::string(sound.message()));
  comm::Runtime& runtime = comm::CurrentRuntime();
  group_ = runtime.GroupId(mesh::Dim::kPp);
  for (int link = 0; link < kLinkCount; ++link) {
    fork_[link] = runtime.NewEvent();
    first_done_[link] = runtime.NewEvent();
    for (size_t i = 1; i < model_->chunks().size() * options_.microbatches; ++i) runtime.NewEvent();
  }
}

Tensor StageRunner::Run(const StageInputs& inputs) {
  model_->context().training = true;
  if (!training_) training_ = Lowering(options_.schedule).Rank(options_.rank);
  return Execute(*training_, inputs);
}

Tensor StageRunner::Evaluate(const StageInputs& inputs) {
  at::NoGradGuard no_grad;
  model_->context().training = false;
  if (!evaluation_) {
    const auto schedule = MakeForwardSchedule(placement(), options_.microbatches);
    TORCH_CHECK(schedule.ok(), std::string(schedule.status().message()));
    evaluation_ = Lowering(*schedule).Rank(options_.rank);
  }
  return Execute(*evaluation_, inputs);
}

Tensor StageRunner::Execute(const std::vector<LoweredAction>& actions, const StageInputs& inputs) {
  TORCH_CHECK(inputs.tokens.size(0) % options_.microbatches == 0, "a batch of ", inputs.tokens.size(0),
              " sequences is no multiple of ", options_.microbatches, " microbatches");
  inputs_ = &inputs;
  microbatches_.assign(model_->chunks().size() * options_.microbatches, {});
  loss_sum_ = at::zeros({}, options_.activation.dtype(at::kFloat));
  for (size_t i = 0; i < actions.size(); ++i) {
    graph::AnnotationScope<int32_t> index(&graph::Annotation::action, static_cast<int32_t>(i));
    graph::AnnotationScope<int32_t> microbatch(&graph::Annotation::microbatch, actions[i].microbatch);
    graph::PhaseScope phase(PhaseOf(actions[i]));
    const auto timed = comm::TimelineScope::Phase(PhaseOf(actions[i]));
    Perform(actions[i]);
  }
  microbatches_.clear();
  inputs_ = nullptr;
  return std::exchange(loss_sum_, Tensor());
}

void StageRunner::Perform(const LoweredAction& action) {
  switch (action.kind) {
    case Kind::kPostReceive: return PostReceive(action);
    case Kind::kWait: return comm::WaitEvent(comm::kCompute, DoneEvent(action));
    case Kind::kForward: return Forward(action);
    case Kind::kBackward:
    case Kind::kInputGradient:
    case Kind::kWeightGradient: return Backward(action);
    case Kind::kPostSend: return PostSend(action);
  }
}

void StageRunner::Forward(const LoweredAction& action) {
  const bool first = action.chunk == 0, last = action.chunk + 1 == placement().chunks;
  const int64_t microbatch = action.microbatch;
  // What checkpointing runs again in backward keeps this context (activation_checkpoint.cc).
  model_->context().rng = inputs_->rng;
  model_->context().samples = Rows(inputs_->samples, microbatch, options_.microbatches);
  model_->context().auxiliary_losses.clear();
  Microbatch& current = At(action);
  Tensor output =
      model_->RunChunk(Local(action.chunk), first ? Rows(inputs_->tokens, microbatch, options_.microbatches) : current.input);
  if (last) {
    const Tensor logits = std::move(output);
    output = loss_(logits, Rows(inputs_->targets, microbatch, options_.microbatches));
    loss_sum_.add_(output.detach());
  }
  if (at::GradMode::is_enabled()) {
    current.root = torch::autograd::impl::gradient_edge(output);
    for (const Tensor& loss : std::exchange(model_->context().auxiliary_losses, {})) {
      TORCH_CHECK(loss.dim() == 0 && loss.scalar_type() == at::kFloat, "an auxiliary loss is ", loss.dtype(), " ", loss.sizes());
      current.auxiliary_roots.push_back(torch::autograd::impl::gradient_edge(loss));
    }
  } else {
    current.input.reset();
  }
  if (last) return;
  if (placement().Meet(action.chunk, action.chunk + 1)) {
    At(action.chunk + 1, microbatch).input = output.detach().set_requires_grad(at::GradMode::is_enabled());
  } else {
    current.output = std::move(output);
  }
}

void StageRunner::Backward(const LoweredAction& action) {
  const Gradients gradients = GradientsOf(action.kind);
  const size_t chunk = Local(action.chunk);
  if (hooks_.before_backward) hooks_.before_backward(chunk, action.reduce_gradients, gradients);
  if (gradients == Gradients::kAll) RunBackward(action);
  if (gradients == Gradients::kInputs) {
    const model::DeferWeightGradients later(&At(action).weight_gradients);
    RunBackward(action);
  }
  if (gradients == Gradients::kWeights) At(action).weight_gradients.Compute();
  if (hooks_.after_backward) hooks_.after_backward(chunk, action.reduce_gradients, gradients);
}

Tensor StageRunner::GradientOfLoss() const {
  return options_.loss_scale.defined() ? options_.loss_scale : at::ones({}, loss_sum_.options());
}

void StageRunner::RunBackward(const LoweredAction& action) {
  Microbatch& current = At(action);
  const bool last = action.chunk + 1 == placement().chunks;
  Tensor gradient = last ? GradientOfLoss() : std::move(current.received_gradient);
  // The edge, not the output, is the root, so the output could go once it was sent. No graph is kept.
  torch::autograd::edge_list roots = {std::move(current.root)};
  std::vector<Tensor> gradients = {std::move(gradient)};
  for (torch::autograd::Edge& auxiliary : current.auxiliary_roots) {
    roots.push_back(std::move(auxiliary));
    gradients.push_back(GradientOfLoss());
  }
  torch::autograd::Engine::get_default_engine().execute(roots, gradients, /*keep_graph=*/false, /*create_graph=*/false,
                                                        /*accumulate_grad=*/true);
  current.auxiliary_roots.clear();
  if (!placement().Meet(action.chunk, action.chunk - 1)) return;
  At(action.chunk - 1, action.microbatch).received_gradient = std::exchange(current.input.mutable_grad(), Tensor());
  current.input.reset();
}

void StageRunner::PostReceive(const LoweredAction& action) {
  const int link = static_cast<int>(action.link);
  const int64_t stream = StreamOfLink(action.link);
  Tensor buffer = at::empty(options_.activation_sizes, options_.activation);
  comm::RecordEvent(comm::kCompute, fork_[link]);  // the buffer's memory may have been used before
  comm::WaitEvent(stream, fork_[link]);
  {
    comm::StreamScope scope(stream);
    comm::Recv(buffer, group_, Peer(action));
  }
  comm::RecordEvent(stream, DoneEvent(action));
  Microbatch& current = At(action);
  if (action.link == Link::kReceivePrevious) {
    current.input = buffer.set_requires_grad(at::GradMode::is_enabled());
  } else {
    current.received_gradient = std::move(buffer);
  }
}

void StageRunner::PostSend(const LoweredAction& action) {
  const int link = static_cast<int>(action.link);
  const int64_t stream = StreamOfLink(action.link);
  Microbatch& current = At(action);
  const bool forward = action.link == Link::kSendNext;
  const Tensor message = forward ? current.output.detach().contiguous() : current.input.grad().contiguous();
  TORCH_CHECK(message.sizes() == at::IntArrayRef(options_.activation_sizes) && message.dtype() == options_.activation.dtype(),
              "chunk ", action.chunk, " gives ", message.dtype(), " ", message.sizes(), " where its neighbour expects ",
              options_.activation.dtype(), " ", at::IntArrayRef(options_.activation_sizes));
  comm::RecordEvent(comm::kCompute, fork_[link]);
  comm::WaitEvent(stream, fork_[link]);
  {
    comm::StreamScope scope(stream);
    comm::Send(message, group_, Peer(action));
  }
  comm::RecordEvent(stream, DoneEvent(action));
  // From here on the runtime holds the message, until the wait.
  (forward ? current.output : current.input).reset();
}

int64_t StageRunner::Peer(const LoweredAction& action) const {
  const bool next = action.link == Link::kSendNext || action.link == Link::kReceiveNext;
  return placement().RankOf(action.chunk + (next ? 1 : -1));
}

int64_t StageRunner::DoneEvent(const LoweredAction& action) const {
  const int64_t message = static_cast<int64_t>(Local(action.chunk)) * options_.microbatches + action.microbatch;
  return first_done_[static_cast<int>(action.link)] + message;
}

}  // namespace legoai::parallel
