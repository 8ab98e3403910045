// Activation checkpointing (Chen et al. 2016): a block keeps its input instead of the tensors its backward needs, and recomputes
// them when the first one is needed.
//
// Implemented with saved-tensor hooks, not by a nested backward: the graph is that of the plain forward. A recomputed tensor
// lives until the node that saved it has run. Recomputation ends with the last tensor needed, so a block's final operators and
// collectives do not run again. It happens under graph::Phase::kRecompute and with the StepContext of its forward, so counter-
// based dropout repeats itself. Values of parameters are recomputed as themselves: views of one storage, no copy.
//
// The forward keeps the outputs of operators that a KeepPolicy names (kept_outputs.h), and recomputation reuses them.
//
// Applied after tensor parallelism, whose collectives are recomputed, and before data parallelism, which must have gathered the
// parameters when a block's backward begins.
#pragma once

#include <torch/csrc/autograd/saved_variable_hooks.h>

#include <functional>
#include <memory>

#include "proto/legoai/v1/recipe.pb.h"
#include "worker/model/language_model.h"
#include "worker/parallel/kept_outputs.h"

namespace legoai::parallel {

// Default saved-tensor hooks in C++ (torch offers them only in Python): each tensor that autograd saves is passed to a hook made
// by the thread's innermost scope, and requested from it when its backward runs.
using SavedTensorHookFactory = std::function<std::unique_ptr<torch::autograd::SavedVariableHooks>()>;

// During its lifetime, tensors saved on this thread get hooks from `factory`, which is not owned. Scopes nest.
class SavedTensorHookScope {
 public:
  explicit SavedTensorHookScope(const SavedTensorHookFactory* factory);
  ~SavedTensorHookScope();
  SavedTensorHookScope(const SavedTensorHookScope&) = delete;
  SavedTensorHookScope& operator=(const SavedTensorHookScope&) = delete;

 private:
  const SavedTensorHookFactory* previous_;
};

// Checkpoints every block that the recipe selects, which is checked and has its defaults (core/recipe/recipe.h).
void ApplyActivationCheckpoint(model::LanguageModel& model, const v1::ActivationCheckpoint& recipe);

// Makes `module` recompute. `context` is what its forward reads in addition to the input; `policy` selects the operators whose
// outputs are kept (null: none). `context` is not owned and must outlive the module's use.
void Checkpoint(model::Module& module, model::StepContext& context, std::shared_ptr<const KeepPolicy> policy = nullptr);

}  // namespace legoai::parallel
