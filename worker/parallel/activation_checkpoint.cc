#include "worker/parallel/activation_checkpoint.h"

#include <c10/core/GradMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/grad_mode.h>
#include <torch/csrc/autograd/saved_variable_hooks.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/recipe/keep_policy.h"
#include "core/recipe/recipe.h"
#include "core/trace/annotation.h"

namespace legoai::parallel {
namespace {

using at::Tensor;
using model::StepContext;
using torch::autograd::SavedVariableHooks;

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

// Thrown through the block's forward when all that its backward needs is there.
struct RecomputedEnough {};

// One saved tensor of the original forward; filled by recomputation. It lives as long as autograd keeps the saved variable.
struct Slot {
  Tensor tensor;
};

// One forward of one block. Owned by the slots' hooks, that is by the autograd graph, and gone with it.
class Frame {
 public:
  Frame(const model::ForwardFunction& forward, const Tensor& input, StepContext& context, const std::string& module,
        std::shared_ptr<const KeepPolicy> policy)
      : forward_(forward),
        input_(input.tensor_data()),
        input_version_(input._version()),
        input_requires_grad_(input.requires_grad()),
        context_(context),
        context_then_(context),
        dispatch_keys_(c10::impl::tls_local_dispatch_key_set()),
        module_(module) {
    context_then_.auxiliary_losses.clear();  // they hold graphs, and recomputation adds them once more
    if (policy != nullptr)
      kept_.emplace(
          std::move(policy), [this] { return slots_.size(); }, &module_);
  }

  KeptOutputs* kept() { return kept_ ? &*kept_ : nullptr; }

  std::shared_ptr<Slot> NewSlot() {
    auto slot = std::make_shared<Slot>();
    slots_.push_back(slot);
    return slot;
  }

  void Recompute();

 private:
  void ForwardAgain(const Tensor& input);

  // What recomputation saves goes to the slot of the same number, if its owner still lives.
  class Filler : public SavedVariableHooks {
   public:
    explicit Filler(Frame* frame) : frame_(frame) {}
    void call_pack_hook(const Tensor& tensor) override {
      if (auto slot = frame_->slots_.at(frame_->filled_).lock()) slot->tensor = tensor.variable_data();
      if (++frame_->filled_ == frame_->slots_.size()) throw RecomputedEnough();
    }
    Tensor call_unpack_hook() override { TORCH_CHECK(false, "the graph of a recomputation has no backward"); }

   private:
    Frame* frame_;
  };

  model::ForwardFunction forward_;
  Tensor input_;
  int64_t input_version_;
  bool input_requires_grad_;
  StepContext& context_;
  StepContext context_then_;
  c10::impl::LocalDispatchKeySet dispatch_keys_;
  const std::string& module_;
  std::vector<std::weak_ptr<Slot>> slots_;
  size_t filled_ = 0;
  std::optional<KeptOutputs> kept_;
};

// Puts a step context in place for a scope.
class ContextScope {
 public:
  ContextScope(StepContext& place, const StepContext& value) : place_(place), previous_(std::exchange(place, value)) {}
  ~ContextScope() { place_ = std::move(previous_); }
  ContextScope(const ContextScope&) = delete;
  ContextScope& operator=(const ContextScope&) = delete;

 private:
  StepContext& place_;
  StepContext previous_;
};

void Frame::Recompute() {
  TORCH_CHECK(filled_ == 0, module_, ": a second backward through a checkpointed block");
  const Tensor input = std::exchange(input_, Tensor());  // what backward needs of it gets a slot
  TORCH_CHECK(static_cast<int64_t>(input._version()) == input_version_, module_,
              ": the input of a checkpointed block was changed in place");
  graph::PhaseScope phase(graph::Phase::kRecompute);
  graph::AnnotationScope<const std::string*> module(&graph::Annotation::module, &module_);
  ContextScope context(context_, context_then_);
  const SavedTensorHookFactory factory = [this] { return std::make_unique<Filler>(this); };
  SavedTensorHookScope hooks(&factory);
  // A backward function may ask for its saved tensors while it works below autograd; the forward ran above.
  c10::impl::ForceDispatchKeyGuard dispatch_keys(dispatch_keys_);
  c10::AutoGradMode grad_mode(true);
  try {
    ForwardAgain(input.variable_data().set_requires_grad(input_requires_grad_));
  } catch (const RecomputedEnough&) {
    kept_.reset();
    return;
  }
  TORCH_CHECK(false, module_, ": recomputation saved ", filled_, " tensors, the forward ", slots_.size());
}

void Frame::ForwardAgain(const Tensor& input) {
  std::optional<graph::OperatorHookScope> gives_back;
  if (kept_) kept_->BeginRecomputation(), gives_back.emplace(&*kept_);
  forward_(input);
}

// A saved tensor of the original forward: only its slot is kept.
class Keeper : public SavedVariableHooks {
 public:
  explicit Keeper(std::shared_ptr<Frame> frame) : frame_(std::move(frame)) {}
  void call_pack_hook(const Tensor&) override { slot_ = frame_->NewSlot(); }
  Tensor call_unpack_hook() override {
    if (!slot_->tensor.defined()) frame_->Recompute();
    return slot_->tensor;
  }

 private:
  std::shared_ptr<Frame> frame_;
  std::shared_ptr<Slot> slot_;
};

// Of the weights, as tensor parallelism has cut them, in the modules of `block` that are named. All blocks have the same.
std::vector<KeepPolicy::Shape> ForcedShapes(const v1::ActivationCheckpoint& recipe, const model::Module& block) {
  std::vector<KeepPolicy::Shape> shapes;
  const std::function<void(const model::Module&)> visit = [&](const model::Module& module) {
    const model::Parameter* const weight = module.parameter("weight");
    const bool is_product = weight != nullptr && weight->local_shape.size() == 2;
    if (is_product && IsForcedAgain(recipe, module.path().substr(block.path().size())))
      shapes.push_back({weight->local_shape[1], weight->local_shape[0]});
    for (const auto& [name, child] : module.children()) visit(*child);
  };
  visit(block);
  return shapes;
}

// A process starts the threads of its GPUs once, for the engine that runs the first backward (PyTorch 2.11, engine.cpp,
// initialize_device_threads_pool); another one would have none. So it is this one whether or not something recomputes.
void InstallHookEngine() {
  static const bool installed = [] {
    torch::autograd::set_default_engine_stub(&HookEngine::Get);
    return true;
  }();
  (void)installed;
}

}  // namespace

SavedTensorHookScope::SavedTensorHookScope(const SavedTensorHookFactory* factory) {
  InstallHookEngine();
  previous_ = std::exchange(t_factory, factory);
}
SavedTensorHookScope::~SavedTensorHookScope() { t_factory = previous_; }

void Checkpoint(model::Module& module, StepContext& context, std::shared_ptr<const KeepPolicy> policy) {
  module.Intercept([&module, &context, policy = std::move(policy)](const Tensor& input, const model::ForwardFunction& next) {
    if (!c10::GradMode::is_enabled()) return next(input);
    auto frame = std::make_shared<Frame>(next, input, context, module.path(), policy);
    const SavedTensorHookFactory factory = [&frame] { return std::make_unique<Keeper>(frame); };
    SavedTensorHookScope hooks(&factory);
    if (frame->kept() == nullptr) return next(input);
    const graph::OperatorHookScope keeps(frame->kept());
    const Tensor output = next(input);
    frame->kept()->EndForward();
    return output;
  });
}

void ApplyActivationCheckpoint(model::LanguageModel& model, const v1::ActivationCheckpoint& recipe) {
  InstallHookEngine();
  std::map<std::vector<int64_t>, std::shared_ptr<const KeepPolicy>> policies;  // by the rules that are for a block
  for (model::Layer& layer : model.layers()) {
    const bool is_block = layer.kind == model::Layer::Kind::kBlock;
    if (!is_block || RecomputedBlocks(recipe, layer.index, layer.index + 1) == 0) continue;
    if (!KeepsOperators(recipe)) {
      Checkpoint(*layer.module, model.context());
      continue;
    }
    const std::vector<KeepRule> rules = KeepRules(recipe);
    std::vector<int64_t> of_block;
    for (size_t i = 0; i < rules.size(); ++i) {
      if (rules[i].IsOf(layer.index)) of_block.push_back(static_cast<int64_t>(i));
    }
    std::shared_ptr<const KeepPolicy>& policy = policies[of_block];
    if (policy == nullptr)
      policy = std::make_shared<const KeepPolicy>(KeepRulesOf(recipe, layer.index), ForcedShapes(recipe, *layer.module));
    Checkpoint(*layer.module, model.context(), policy);
  }
}

}  // namespace legoai::parallel
