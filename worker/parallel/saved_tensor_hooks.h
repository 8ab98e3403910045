// Default hooks for the tensors that autograd saves for backward, from C++ (torch offers them to Python only): each saved tensor
// is handed to a hook made by the innermost scope of the thread, and asked back from it when its backward runs.
#pragma once

#include <torch/csrc/autograd/saved_variable_hooks.h>

#include <functional>
#include <memory>

namespace legoai::parallel {

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

}  // namespace legoai::parallel
