#include "worker/parallel/kept_outputs.h"

#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <utility>

#include "core/trace/annotation.h"

namespace legoai::parallel {
namespace {

// Autograd makes a variable of what it is given: it gets a tensor of its own, with the same storage.
c10::IValue Alone(const c10::IValue& output) {
  if (!output.isTensor() || !output.toTensor().defined()) return output;
  return output.toTensor().variable_data();
}

bool SharesStorage(const std::vector<c10::IValue>& outputs, const at::Tensor& tensor) {
  return std::any_of(outputs.begin(), outputs.end(), [&](const c10::IValue& output) {
    return output.isTensor() && output.toTensor().defined() && output.toTensor().is_alias_of(tensor);
  });
}

}  // namespace

const KeepPolicy::Facts& KeepPolicy::FactsOf(const c10::OperatorHandle& op) const {
  const MutexLock lock(mutex_);
  const auto [entry, fresh] = facts_.try_emplace(&op.operator_name());
  Facts& facts = entry->second;
  if (!fresh) return facts;
  for (size_t i = 0; i < rules_.size(); ++i) {
    const auto& names = rules_[i].operators;
    if (std::find(names.begin(), names.end(), op.operator_name().name) != names.end()) facts.rules.push_back(i);
  }
  const auto& arguments = op.schema().arguments();
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i].alias_info() != nullptr && arguments[i].alias_info()->isWrite()) facts.written.push_back(i);
  }
  return facts;
}

bool KeepPolicy::IsForcedAgain(const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> arguments) const {
  const std::string& name = op.operator_name().name;
  if (forced_.empty() || (name != "aten::mm" && name != "aten::addmm")) return false;
  const at::Tensor& weight = arguments[name == "aten::mm" ? 1 : 2].toTensor();  // transposed: [in, out]
  return std::find(forced_.begin(), forced_.end(), Shape{weight.size(0), weight.size(1)}) != forced_.end();
}

void KeptOutputs::OnOperator(const c10::OperatorHandle& op, torch::jit::Stack* stack, absl::FunctionRef<void()> run) {
  const KeepPolicy::Facts& facts = policy_->FactsOf(op);
  if (!facts.written.empty() && !kept_.empty() && !gives_back_) NoteWrites(facts, op, *stack);
  if (!Keeps(facts, op, *stack)) return run();
  if (gives_back_) return GiveBack(op, stack);
  run();
  Keep(op, *stack);
}

bool KeptOutputs::Keeps(const KeepPolicy::Facts& facts, const c10::OperatorHandle& op, const torch::jit::Stack& stack) {
  if (facts.rules.empty()) return false;
  if (policy_->IsForcedAgain(op, torch::jit::last(stack, op.schema().arguments().size()))) return false;
  const std::string* const path = graph::CurrentAnnotation().module;
  const bool inside = path != nullptr && path->size() > block_->size();
  const std::string module = inside ? path->substr(block_->empty() ? 0 : block_->size() + 1) : "";
  bool keeps = false;
  for (const size_t index : facts.rules) {
    const KeepRule& rule = policy_->rules()[index];
    if (rule.Matches(module)) keeps = rule.Keeps(++counts_[index]) || keeps;
  }
  return keeps;
}

void KeptOutputs::Keep(const c10::OperatorHandle& op, const torch::jit::Stack& stack) {
  Kept kept{.op = &op.operator_name(), .outputs = {}, .saved_before = saved_()};
  for (size_t i = stack.size() - op.schema().returns().size(); i < stack.size(); ++i) kept.outputs.push_back(Alone(stack[i]));
  kept_.push_back(std::move(kept));
}

void KeptOutputs::GiveBack(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  TORCH_CHECK(given_ < kept_.size() && kept_[given_].op == &op.operator_name(), *block_, ": recomputation runs ",
              op.schema().name(), " where the forward ran another operator");
  Kept& kept = kept_[given_++];
  TORCH_CHECK(!kept.written, *block_, ": the output of ", op.schema().name(),
              " was written in place after it was kept; take the operator out of the policy");
  torch::jit::drop(*stack, op.schema().arguments().size());
  for (c10::IValue& output : kept.outputs) stack->push_back(std::move(output));
  kept.outputs.clear();
}

void KeptOutputs::NoteWrites(const KeepPolicy::Facts& facts, const c10::OperatorHandle& op, const torch::jit::Stack& stack) {
  const size_t base = stack.size() - op.schema().arguments().size();
  const auto note = [&](const at::Tensor& written) {
    if (!written.defined() || !written.has_storage()) return;
    for (Kept& kept : kept_) kept.written = kept.written || SharesStorage(kept.outputs, written);
  };
  for (const uint16_t place : facts.written) {
    const c10::IValue& value = stack[base + place];
    if (value.isTensor()) note(value.toTensor());
    if (!value.isTensorList()) continue;
    for (const c10::IValue& element : value.toListRef()) note(element.toTensor());
  }
}

void KeptOutputs::EndForward() {
  std::erase_if(kept_, [last = saved_()](const Kept& kept) { return kept.saved_before >= last; });
}

void KeptOutputs::BeginRecomputation() {
  gives_back_ = true;
  std::fill(counts_.begin(), counts_.end(), 0);
}

}  // namespace legoai::parallel
