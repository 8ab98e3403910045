#include "worker/graph/fake/meta_twins.h"

#include <ATen/core/List.h>
#include <ATen/core/Tensor.h>
#include <c10/core/Allocator.h>

#include <optional>

namespace legoai::sim {
namespace {

// Gives no memory, in the CPU's name: storages that are resized stay fake.
class FakeAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t) override { return {nullptr, c10::Device(c10::kCPU)}; }
  void copy_data(void*, const void*, size_t) const override {}
};

c10::Storage MakeStorage(size_t bytes, c10::Device device, c10::Allocator* allocator) {
  return c10::Storage(c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), bytes,
                                                            c10::DataPtr(nullptr, device), allocator, /*resizable=*/true));
}

void SetGeometry(const at::Tensor& to, const at::Tensor& from) {
  to.unsafeGetTensorImpl()->set_sizes_and_strides(from.sizes(), from.strides(), from.storage_offset());
}

at::Tensor MakeTensor(c10::Storage storage, c10::DispatchKey key, const at::Tensor& like) {
  at::Tensor tensor = at::detail::make_tensor<c10::TensorImpl>(std::move(storage), c10::DispatchKeySet(key), like.dtype());
  SetGeometry(tensor, like);
  return tensor;
}

bool SameGeometry(const at::Tensor& a, const at::Tensor& b) {
  return a.sizes() == b.sizes() && a.strides() == b.strides() && a.storage_offset() == b.storage_offset();
}

bool IsOptionalTensorList(const c10::IValue& value) {
  return value.isList() && value.toList().elementType()->kind() == c10::TypeKind::OptionalType;
}

// The value with `change` applied to every tensor.
template <class F>
c10::IValue Map(const c10::IValue& value, F change) {
  if (value.isTensor()) return change(value.toTensor());
  if (value.isTensorList()) {
    c10::List<at::Tensor> list;
    for (const c10::IValue& element : value.toListRef()) list.push_back(change(element.toTensor()));
    return list;
  }
  if (IsOptionalTensorList(value)) {
    c10::List<std::optional<at::Tensor>> list;
    for (const c10::IValue& element : value.toListRef()) {
      list.push_back(element.isNone() ? std::nullopt : std::optional<at::Tensor>(change(element.toTensor())));
    }
    return list;
  }
  return value;
}

}  // namespace

c10::Storage MakeFakeStorage(size_t bytes) {
  static FakeAllocator allocator;
  return MakeStorage(bytes, c10::kCPU, &allocator);
}

c10::IValue MetaTwins::Down(const c10::IValue& value) {
  return Map(value, [this](const at::Tensor& tensor) { return DownTensor(tensor); });
}
c10::IValue MetaTwins::Up(const c10::IValue& value) {
  return Map(value, [this](const at::Tensor& tensor) { return UpTensor(tensor); });
}

at::Tensor MetaTwins::DownTensor(const at::Tensor& tensor) {
  if (!tensor.defined() || tensor.unsafeGetTensorImpl()->is_wrapped_number()) return tensor;
  for (const TensorPair& pair : tensors_) {
    if (pair.original.is_same(tensor)) return pair.twin;
  }
  c10::Storage twin;
  for (const StoragePair& pair : storages_) {
    if (pair.original.unsafeGetStorageImpl() == tensor.storage().unsafeGetStorageImpl()) twin = pair.twin;
  }
  if (!twin) {
    twin = MakeStorage(tensor.storage().nbytes(), c10::kMeta, c10::GetAllocator(c10::kMeta));
    storages_.push_back({twin, tensor.storage()});
  }
  tensors_.push_back({MakeTensor(std::move(twin), c10::DispatchKey::Meta, tensor), tensor});
  return tensors_.back().twin;
}

c10::Storage MetaTwins::OriginalOf(const c10::StorageImpl* twin) const {
  for (const auto* pairs : {&storages_, &newborn_}) {
    for (const StoragePair& pair : *pairs) {
      if (pair.twin.unsafeGetStorageImpl() == twin) return pair.original;
    }
  }
  return {};
}

bool MetaTwins::WriteBack() {
  bool changed = false;
  for (const StoragePair& pair : storages_) {
    if (pair.twin.nbytes() == pair.original.nbytes()) continue;
    auto* storage = pair.original.unsafeGetStorageImpl();
    storage->set_data_ptr_noswap(c10::DataPtr(nullptr, pair.original.device()));
    storage->set_nbytes(pair.twin.nbytes());
    changed = true;
  }
  for (const TensorPair& pair : tensors_) {
    c10::Storage storage = OriginalOf(pair.twin.storage().unsafeGetStorageImpl());
    if (storage && storage.unsafeGetStorageImpl() != pair.original.storage().unsafeGetStorageImpl()) {  // set_
      pair.original.unsafeGetTensorImpl()->set_storage_keep_dtype(std::move(storage));
      changed = true;
    }
    if (!SameGeometry(pair.twin, pair.original)) {
      SetGeometry(pair.original, pair.twin);
      changed = true;
    }
  }
  return changed;
}

at::Tensor MetaTwins::UpTensor(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.is_meta()) return tensor;
  for (const TensorPair& pair : tensors_) {
    if (pair.twin.is_same(tensor)) return pair.original;
  }
  const auto* twin = tensor.storage().unsafeGetStorageImpl();
  c10::Storage storage = OriginalOf(twin);
  if (!storage) {
    storage = MakeFakeStorage(twin->nbytes());
    newborn_.push_back({tensor.storage(), storage});
  }
  for (const TensorPair& pair : tensors_) {
    if (pair.original.storage().unsafeGetStorageImpl() != storage.unsafeGetStorageImpl()) continue;
    // A view keeps its base's keys: in inference mode they tell a view of a normal tensor.
    at::Tensor view = at::detail::make_tensor<c10::TensorImpl>(c10::TensorImpl::VIEW, std::move(storage), pair.original.key_set(),
                                                               tensor.dtype());
    SetGeometry(view, tensor);
    return view;
  }
  return MakeTensor(std::move(storage), c10::DispatchKey::CPU, tensor);
}

void MetaTwins::Clear() {
  tensors_.clear();
  storages_.clear();
  newborn_.clear();
}

}  // namespace legoai::sim
