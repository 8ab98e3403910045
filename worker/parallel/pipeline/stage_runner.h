// Runs one pipeline rank's lowered list of actions (lowering.h) on its chunks of the model: a training step's forwards and
// backwards, with or without a pipeline. A single rank is a pipeline too: it accumulates its microbatches.
//
// Messages: [microbatch, seq, dim] (seq / tp under sequence parallelism) in the compute dtype, on the stream of their link and
// the group "pp". A received tensor is a leaf that requires grad; its gradient is sent back. Lifetimes are the same in every run:
// the output of a chunk is freed when compute waits for its send, and the graph of a microbatch, its input and its received
// gradient with its backward. In between only autograd holds activations. When chunks lie in a V, a chunk's output is directly
// the input of the next one on the same rank; the input's gradient is passed back when its backward ends.
//
// Not thread-safe. The model is not owned and must outlive the runner, which uses the comm::Runtime current at construction.
// Errors: c10::Error.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/edge.h>

#include <array>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "core/schedule/lowering.h"
#include "worker/model/language_model.h"
#include "worker/model/weight_gradients.h"
#include "worker/parallel/loss_parallel.h"

namespace legoai::parallel {

struct StageOptions {
  int64_t rank = 0;                       // of the group "pp"
  Schedule schedule;                      // of a step: sound (CheckSchedule), with as many ranks as the group
  int64_t microbatches = 1;               // of a step
  std::vector<int64_t> activation_sizes;  // of one microbatch at the open ends: [microbatch, seq, dim]
  at::TensorOptions activation;           // compute dtype and device
  at::Tensor loss_scale;                  // fp32 []: multiplies the loss in backward; undefined: 1
};

// Hooks for data parallelism, which reduces gradients once per step. Either may be empty. They run around each backward of one of
// the rank's chunks, or each part of one; `last`: it is the chunk's last of its kind.
struct StageHooks {
  using Hook = std::function<void(size_t chunk, bool last, model::Gradients gradients)>;
  Hook before_backward, after_backward;
};

// All microbatches of a step; rows [m * microbatch, (m + 1) * microbatch) are microbatch m.
struct StageInputs {
  at::Tensor tokens, targets;  // int64 [microbatches * microbatch, seq]
  at::Tensor samples;          // int64 [microbatches * microbatch]
  at::Tensor rng;              // int64 [2]
};

class StageRunner {
 public:
  StageRunner(model::LanguageModel* model, LossFunction loss, StageOptions options, StageHooks hooks);

  // Forward and backward of all microbatches; the parameters' hooks take the gradients. Returns the sum of the losses, fp32 [],
  // on the rank of the last chunk and zero elsewhere. Nothing is in flight when it returns, except what hooks started.
  at::Tensor Run(const StageInputs& inputs);
  // Run() then performs these actions instead of the schedule's: the part of a step that a capture needs.
  void PerformOnly(std::vector<LoweredAction> actions) { training_ = std::move(actions); }
  // The same sum without gradients, not in training mode.
  at::Tensor Evaluate(const StageInputs& inputs);

 private:
  struct Microbatch {
    at::Tensor input, output;                            // at the open ends
    at::Tensor received_gradient;                        // of the output
    torch::autograd::Edge root;                          // where its backward begins
    std::vector<torch::autograd::Edge> auxiliary_roots;  // and of StepContext::auxiliary_losses
    model::WeightGradients weight_gradients;             // that are put off
  };

  at::Tensor Execute(const std::vector<LoweredAction>& actions, const StageInputs& inputs);
  void Perform(const LoweredAction& action);
  void Forward(const LoweredAction& action);
  void Backward(const LoweredAction& action);
  void RunBackward(const LoweredAction& action);
  at::Tensor GradientOfLoss() const;
  void PostReceive(const LoweredAction& action);
  void PostSend(const LoweredAction& action);
  int64_t Peer(const LoweredAction& action) const;
  const Placement& placement() const { return options_.schedule.placement; }
  // Which of the rank's chunks.
  size_t Local(int64_t chunk) const { return placement().LocalOf(chunk); }
  Microbatch& At(int64_t chunk, int64_t microbatch) { return microbatches_[Local(chunk) * options_.microbatches + microbatch]; }
  Microbatch& At(const LoweredAction& action) { return At(action.chunk, action.microbatch); }
  int64_t DoneEvent(const LoweredAction& action) const;

  model::LanguageModel* model_;
  LossFunction loss_;
  StageOptions options_;
  StageHooks hooks_;
  std::optional<std::vector<LoweredAction>> training_, evaluation_;  // from their first use on
  int64_t group_ = 0;
  std::array<int64_t, kLinkCount> fork_;        // events: compute has got there
  std::array<int64_t, kLinkCount> first_done_;  // events: a message is through; one each, by chunk and microbatch

  // Of the step that runs.
  const StageInputs* inputs_ = nullptr;
  std::vector<Microbatch> microbatches_;  // of each chunk
  at::Tensor loss_sum_;
};

}  // namespace legoai::parallel
