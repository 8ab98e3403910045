// Activation checkpointing (Chen et al. 2016): a block keeps its input instead of the tensors its backward needs, and computes
// these again when the first of them is asked for.
//
// By saved-tensor hooks, not by a backward inside the backward: the graph is the one of the plain forward. A recomputed tensor
// lives until the node that saved it has run. Recomputation ends with the last tensor needed, so a block's closing operators, and
// collectives, do not run again. It happens under graph::Phase::kRecompute and with the StepContext of its forward, so counter-
// based dropout repeats itself. Values of parameters are recomputed as themselves: views of one storage, no copy.
//
// Of an operator that a KeepPolicy names (kept_outputs.h), the forward keeps the outputs, and recomputation takes them.
//
// Applied after tensor parallelism, whose collectives are recomputed, and before data parallelism, which must have gathered the
// values when a block's backward begins.
#pragma once

#include <torch/csrc/autograd/saved_variable_hooks.h>

#include <functional>
#include <memory>

#include "proto/legoai/v1/recipe.pb.h"
#include "worker/model/language_model.h"
#include "worker/parallel/kept_outputs.h"

namespace legoai::parallel {

// Default hooks for the tensors that autograd saves for backward, from C++ (torch offers them to Python only): each saved tensor
// is handed to a hook made by the innermost scope of the thread, and asked back from it when its backward runs.
using SavedTensorHookFactory = std::function<std::unique_ptr<torch::autograd::SavedVariableHooks>()>;

// While it lives, tensors saved on this thread get hooks from `factory`, which is not owned. Scopes nest.
class SavedTensorHookScope {
 public:
  explicit SavedTensorHookScope(const SavedTensorHookFactory* factory);
  ~SavedTensorHookScope();
  SavedTensorHookScope(const SavedTensorHookScope&) = delete;
  SavedTensorHookScope& operator=(const SavedTensorHookScope&) = delete;

 private:
  const SavedTensorHookFactory* previous_;
};

// Every block that the recipe, checked and with its defaults, says (core/recipe/recipe.h).
void ApplyActivationCheckpoint(model::LanguageModel& model, const v1::ActivationCheckpoint& recipe);

// Makes `module` recompute. `context` is what its forward reads besides the input, `policy` what it keeps of its operators (null:
// nothing). `context` is not owned; it must outlive the module's use.
void Checkpoint(model::Module& module, model::StepContext& context, std::shared_ptr<const KeepPolicy> policy = nullptr);

}  // namespace legoai::parallel
