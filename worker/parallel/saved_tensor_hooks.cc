#include "worker/parallel/saved_tensor_hooks.h"

#include <torch/csrc/autograd/engine.h>

#include <utility>

namespace legoai::parallel {
namespace {

thread_local const SavedTensorHookFactory* t_factory = nullptr;

// SavedVariable asks the engine for default hooks; torch's own Python binding derives from Engine for the same reason.
class HookEngine : public torch::autograd::Engine {
 public:
  // Never destroyed: its threads may outlive static destruction.
  static torch::autograd::Engine& Get() {
    static auto* engine = new HookEngine;
    return *engine;
  }
  std::unique_ptr<torch::autograd::SavedVariableHooks> get_default_saved_variable_hooks() override {
    return t_factory ? (*t_factory)() : nullptr;
  }
};

}  // namespace

SavedTensorHookScope::SavedTensorHookScope(const SavedTensorHookFactory* factory) {
  static const bool installed = [] {
    torch::autograd::set_default_engine_stub(&HookEngine::Get);
    return true;
  }();
  (void)installed;
  previous_ = std::exchange(t_factory, factory);
}
SavedTensorHookScope::~SavedTensorHookScope() { t_factory = previous_; }

}  // namespace legoai::parallel
