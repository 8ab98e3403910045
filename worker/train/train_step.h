// One training step: what a worker runs, and what the simulator captures (docs/architecture.md).
//
// Build() creates the model, applies the recipe (parallel/parallelize.h) and allocates parameters, optimizer state and inputs on
// the current comm::Runtime; under a recorder with a fake device nothing takes memory. Run() is a pure function of State() and
// inputs() that reads no host value, so its capture is valid for every step. Not thread-safe.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/recipe/resolved_recipe.h"
#include "core/schedule/lowering.h"
#include "core/trace/trace.h"
#include "proto/legoai/v1/model.pb.h"
#include "proto/legoai/v1/recipe.pb.h"
#include "worker/model/language_model.h"
#include "worker/train/optimizer.h"

namespace legoai::train {

struct NamedTensor {
  std::string name;
  at::Tensor tensor;
  graph::Category category;
};

// Filled by the caller before each Run(), in place.
struct StepInputs {
  at::Tensor tokens;         // int64 [accumulation * local_batch, seq], this rank's (parallel::TokensOfRank)
  at::Tensor targets;        // int64 [accumulation * local_batch, seq]
  at::Tensor samples;        // int64 [accumulation * local_batch]: global sample index of each row
  at::Tensor rng;            // int64 [2]: seed, step
  at::Tensor learning_rate;  // fp32 []
};

class TrainStep {
 public:
  // `materialize`: parameters are initialized by rule and seed (false under a fake device).
  static absl::StatusOr<std::unique_ptr<TrainStep>> Build(const parallel::ResolvedRecipe& resolved, c10::Device device,
                                                          bool materialize);
  ~TrainStep();

  StepInputs& inputs();
  model::LanguageModel& model();
  Optimizer& optimizer();
  // Masters, gathered values, optimizer state, inputs: everything that persists across steps, named and categorized.
  std::vector<NamedTensor> State();
  // Gathers parameters that stay whole (ZeRO-1 and 2) from their initialized masters. The first step does so by itself; call it
  // before binding State() to an executor or recording a step, so that the state is as before any later step.
  absl::Status GatherParameters();
  // Forward, backward, reduction, clipping, update. Returns the mean loss over the global batch in nats per token, fp32 [], the
  // same on every rank, and the gradient norm before clipping, fp32 []. If the loss is scaled (loss_scale.h) and the norm is not
  // finite, the update was skipped.
  struct Result {
    at::Tensor loss, grad_norm;
  };
  absl::StatusOr<Result> Run();
  // Run() then performs only these actions of the pipeline (a single stage has actions too): a capture needs only the distinct
  // ones.
  void PerformOnly(std::vector<parallel::LoweredAction> actions);
  // Forward, backward and reduction into Parameter::grad only; for tests of gradients. ReleaseGradients() afterwards.
  absl::StatusOr<at::Tensor> ForwardBackward();
  void ReleaseGradients();
  // Sum of the losses of the tokens in inputs() over all ranks with different tokens, divided by global batch x seq: the mean
  // loss, if no target is parallel::kIgnoredTarget. Without gradients; the same on every rank.
  absl::StatusOr<at::Tensor> Evaluate();

 private:
  struct Impl;
  explicit TrainStep(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace legoai::train
