#include "worker/graph/fake/fake_device.h"

#include <ATen/core/LegacyTypeDispatch.h>

#include <optional>
#include <string>

#include "absl/cleanup/cleanup.h"
#include "absl/container/flat_hash_map.h"
#include "absl/strings/match.h"
#include "core/trace/annotation.h"
#include "worker/graph/fake/meta_twins.h"
#include "worker/graph/fake/shape_memo.h"

namespace legoai::sim {
namespace {

struct OperatorFacts {
  enum class Way {
    kMeta,        // shapes by the Meta kernel
    kOwnKernel,   // lego:: operators that touch no memory on a fake runtime
    kWritesOnly,  // writes its arguments in place, gives nothing, changes no geometry
  };
  Way way = Way::kMeta;
  std::optional<size_t> device_argument;
};

// Optimizers over lists of tensors have CPU kernels but no C++ Meta kernel, and would need a twin for each of thousands of
// tensors to say nothing.
bool WritesOnly(const c10::FunctionSchema& schema) {
  const std::string& name = schema.name();
  const bool is_list_operator = absl::StartsWith(name, "aten::_foreach_") || absl::StartsWith(name, "aten::_fused_");
  return is_list_operator && absl::EndsWith(name, "_") && schema.returns().empty();
}

OperatorFacts FactsOf(const c10::OperatorHandle& op) {
  OperatorFacts facts;
  const auto& schema = op.schema();
  if (WritesOnly(schema)) facts.way = OperatorFacts::Way::kWritesOnly;
  if (absl::StartsWith(schema.name(), "lego::") && !op.hasKernelForDispatchKey(c10::DispatchKey::Meta)) {
    facts.way = OperatorFacts::Way::kOwnKernel;
  }
  for (size_t i = 0; i < schema.arguments().size(); ++i) {
    if (schema.arguments()[i].name() == "device") facts.device_argument = i;
  }
  return facts;
}

bool HasTensor(const torch::jit::Stack& stack, size_t base) {
  for (size_t i = base; i < stack.size(); ++i) {
    if (stack[i].isTensor() || stack[i].isTensorList()) return true;
  }
  return false;
}

[[noreturn]] void Refuse(const c10::OperatorHandle& op, const c10::Error& error) {
  const std::string* module = graph::CurrentAnnotation().module;
  const std::string where = module == nullptr ? "" : " in module '" + *module + "'";
  const std::string why = error.what_without_backtrace();
  TORCH_CHECK(
      !absl::StrContains(why, "with Meta tensors"), op.operator_name(), where,
      " cannot be captured: it has no Meta kernel and no rule in worker/graph/fake/shape_rules, or its result depends on data");
  TORCH_CHECK(false, op.operator_name(), where, " cannot be captured: ", why);
}

}  // namespace

struct FakeDevice::Impl {
  absl::flat_hash_map<const c10::OperatorName*, OperatorFacts> facts;
  MetaTwins twins;
  ShapeMemo memo;

  const OperatorFacts& Facts(const c10::OperatorHandle& op) {
    const auto [it, fresh] = facts.try_emplace(&op.operator_name());
    if (fresh) it->second = FactsOf(op);
    return it->second;
  }

  void RunOnMeta(const c10::OperatorHandle& op, const OperatorFacts& facts, torch::jit::Stack* stack, size_t base) {
    if (memo.Replay(op, stack, base)) return;
    if (facts.device_argument) {
      c10::IValue& device = (*stack)[base + *facts.device_argument];
      if (device.isDevice() || !HasTensor(*stack, base)) device = c10::Device(c10::kMeta);
    }
    for (size_t i = base; i < stack->size(); ++i) (*stack)[i] = twins.Down((*stack)[i]);
    {
      at::AutoDispatchBelowADInplaceOrView below_autograd;
      op.callBoxed(stack);
    }
    const bool changed_arguments = twins.WriteBack();
    for (size_t i = stack->size() - op.schema().returns().size(); i < stack->size(); ++i) (*stack)[i] = twins.Up((*stack)[i]);
    if (!changed_arguments) memo.Remember(op, *stack);
  }
};

FakeDevice::FakeDevice() : impl_(std::make_unique<Impl>()) {}
FakeDevice::~FakeDevice() = default;

void FakeDevice::Run(const c10::OperatorHandle& op, c10::DispatchKeySet after, torch::jit::Stack* stack, size_t base) {
  const OperatorFacts& facts = impl_->Facts(op);
  auto forget_twins = absl::MakeCleanup([this] { impl_->twins.Clear(); });
  try {
    switch (facts.way) {
      case OperatorFacts::Way::kWritesOnly: stack->erase(stack->begin() + base, stack->end()); break;
      case OperatorFacts::Way::kOwnKernel: op.redispatchBoxed(after, stack); break;
      case OperatorFacts::Way::kMeta: impl_->RunOnMeta(op, facts, stack, base); break;
    }
  } catch (const c10::Error& error) {
    Refuse(op, error);
  }
}

}  // namespace legoai::sim
