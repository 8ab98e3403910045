#include "worker/graph/fake/shape_memo.h"

#include <ATen/core/List.h>
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "worker/graph/fake/meta_twins.h"

namespace legoai::sim {
namespace {

int64_t Bits(double value) {
  int64_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

// Kinds of argument in a key.
enum Tag : int64_t { kNone, kBool, kInt, kDouble, kDevice, kTensor, kNoTensor, kNumber, kList, kText };

}  // namespace

void ShapeMemo::AddTensorToKey(const at::Tensor& tensor) {
  if (!tensor.defined()) return key_.push_back(kNoTensor);
  at::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  if (impl->is_wrapped_number()) {
    key_.push_back(kNumber);
    return key_.push_back(static_cast<int64_t>(tensor.scalar_type()));
  }
  const c10::StorageImpl* storage = impl->unsafe_storage().unsafeGetStorageImpl();
  auto shares = [&](at::TensorImpl* other) { return other->unsafe_storage().unsafeGetStorageImpl() == storage; };
  const auto same_storage = std::find_if(tensors_.begin(), tensors_.end(), shares) - tensors_.begin();
  const auto same_tensor = std::find(tensors_.begin() + same_storage, tensors_.end(), impl) - tensors_.begin();
  const auto facts = {int64_t{kTensor}, same_storage, same_tensor, static_cast<int64_t>(tensor.scalar_type()),
                      static_cast<int64_t>(storage->nbytes()), static_cast<int64_t>(impl->key_set().raw_repr()),
                      impl->storage_offset(), impl->dim()};
  const size_t before = key_.size();
  key_.resize(before + facts.size() + 2 * impl->dim());  // once, and not for each of three parts
  auto end = std::copy(facts.begin(), facts.end(), key_.begin() + before);
  end = std::copy(impl->sizes().begin(), impl->sizes().end(), end);
  std::copy(impl->strides().begin(), impl->strides().end(), end);
  tensors_.push_back(impl);
}

bool ShapeMemo::AddToKey(const c10::IValue& value) {
  auto add = [this](int64_t tag, int64_t content) { key_.insert(key_.end(), {tag, content}); };
  if (value.isTensor()) {
    AddTensorToKey(value.toTensor());
  } else if (value.isNone()) {
    key_.push_back(kNone);
  } else if (value.isInt()) {
    add(kInt, value.toInt());
  } else if (value.isBool()) {
    add(kBool, value.toBool());
  } else if (value.isDouble()) {
    add(kDouble, Bits(value.toDouble()));
  } else if (value.isDevice()) {
    key_.push_back(kDevice);
  } else if (value.isIntList()) {
    const auto list = value.toIntVector();
    add(kList, list.size());
    key_.insert(key_.end(), list.begin(), list.end());
  } else if (value.isList()) {
    const auto list = value.toListRef();
    add(kList, list.size());
    return std::all_of(list.begin(), list.end(), [this](const c10::IValue& element) { return AddToKey(element); });
  } else if (value.isString()) {
    const std::string& text = value.toStringRef();
    add(kText, text.size());
    key_.insert(key_.end(), text.begin(), text.end());
  } else {
    return false;
  }
  return true;
}

bool ShapeMemo::MakeKey(const c10::OperatorHandle& op, const torch::jit::Stack& stack, size_t base) {
  key_.clear();
  tensors_.clear();
  key_.push_back(reinterpret_cast<int64_t>(&op.operator_name()));
  for (size_t i = base; i < stack.size(); ++i) {
    if (AddToKey(stack[i])) continue;
    key_.clear();
    return false;
  }
  return true;
}

bool ShapeMemo::Replay(const c10::OperatorHandle& op, torch::jit::Stack* stack, size_t base) {
  if (!MakeKey(op, *stack, base)) return false;
  const auto found = plans_.find(key_);
  if (found == plans_.end()) return false;
  results_.clear(), made_.clear();  // of one that threw
  for (const ResultPlan& plan : found->second) {
    if (!plan.is_list) {
      results_.emplace_back(Make(plan.tensors[0]));
      continue;
    }
    c10::List<at::Tensor> list;
    for (const TensorPlan& tensor : plan.tensors) list.push_back(Make(tensor));
    results_.emplace_back(std::move(list));
  }
  made_.clear();  // storages live only as long as the program's tensors
  stack->erase(stack->begin() + base, stack->end());
  std::move(results_.begin(), results_.end(), std::back_inserter(*stack));
  results_.clear();
  return true;
}

at::Tensor ShapeMemo::Make(const TensorPlan& plan) {
  if (plan.kind == TensorPlan::Kind::kUndefined) return {};
  if (plan.kind == TensorPlan::Kind::kArgument) {
    return at::Tensor(c10::intrusive_ptr<at::TensorImpl>::reclaim_copy(tensors_[plan.source]));
  }
  at::Tensor tensor;
  if (plan.kind == TensorPlan::Kind::kView) {
    at::TensorImpl* base = tensors_[plan.source];
    tensor = at::detail::make_tensor<c10::TensorImpl>(c10::TensorImpl::VIEW, c10::Storage(base->unsafe_storage()),
                                                      base->key_set(), plan.dtype);
  } else {
    if (plan.source == made_.size()) made_.push_back(MakeFakeStorage(plan.new_bytes));
    tensor = at::detail::make_tensor<c10::TensorImpl>(c10::Storage(made_[plan.source]),
                                                      c10::DispatchKeySet(c10::DispatchKey::CPU), plan.dtype);
  }
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(plan.sizes, plan.strides, plan.offset);
  return tensor;
}

bool ShapeMemo::PlanFor(const at::Tensor& result, TensorPlan* plan) {
  if (!result.defined()) return true;
  at::TensorImpl* impl = result.unsafeGetTensorImpl();
  if (impl->is_wrapped_number()) return false;
  const auto argument = std::find(tensors_.begin(), tensors_.end(), impl);
  if (argument != tensors_.end()) {
    plan->kind = TensorPlan::Kind::kArgument;
    plan->source = argument - tensors_.begin();
    return true;
  }
  c10::StorageImpl* storage = impl->unsafe_storage().unsafeGetStorageImpl();
  auto shares = [&](at::TensorImpl* other) { return other->unsafe_storage().unsafeGetStorageImpl() == storage; };
  const auto base = std::find_if(tensors_.begin(), tensors_.end(), shares);
  if (base != tensors_.end()) {
    plan->kind = TensorPlan::Kind::kView;
    plan->source = base - tensors_.begin();
  } else {
    plan->kind = TensorPlan::Kind::kNew;
    const auto known = std::find(new_storages_.begin(), new_storages_.end(), storage);
    plan->source = known - new_storages_.begin();
    plan->new_bytes = storage->nbytes();
    if (known == new_storages_.end()) new_storages_.push_back(storage);
  }
  plan->dtype = impl->dtype();
  plan->offset = impl->storage_offset();
  plan->sizes = impl->sizes().vec();
  plan->strides = impl->strides().vec();
  return true;
}

void ShapeMemo::Remember(const c10::OperatorHandle& op, const torch::jit::Stack& stack) {
  if (key_.empty()) return;
  new_storages_.clear();
  Plan plan(op.schema().returns().size());
  for (size_t i = 0; i < plan.size(); ++i) {
    const c10::IValue& value = stack[stack.size() - plan.size() + i];
    plan[i].is_list = value.isTensorList();
    if (!value.isTensor() && !plan[i].is_list) return;
    if (!plan[i].is_list) {
      if (!PlanFor(value.toTensor(), &plan[i].tensors.emplace_back())) return;
      continue;
    }
    for (const c10::IValue& element : value.toListRef()) {
      if (!PlanFor(element.toTensor(), &plan[i].tensors.emplace_back())) return;
    }
  }
  plans_.emplace(key_, std::move(plan));
}

}  // namespace legoai::sim
