// Converts the arguments of one operator call to twins on the meta device, and results back. Internal to the fake device.
//
// Tensors that share a storage have twins that share one. Changes that a Meta kernel makes to a twin (resize, another geometry,
// another storage) are then applied to the original.
#pragma once

#include <ATen/core/ivalue.h>
#include <c10/core/Storage.h>

#include <utility>
#include <vector>

namespace legoai::sim {

// A CPU storage without memory.
c10::Storage MakeFakeStorage(size_t bytes);

class MetaTwins {
 public:
  // The argument with twins in place of tensors; other values unchanged.
  c10::IValue Down(const c10::IValue& value);
  // Applies the kernel's changes to the originals. True if there were any.
  bool WriteBack();
  // The result with originals, or new fake tensors, in place of meta tensors.
  c10::IValue Up(const c10::IValue& value);
  void Clear();

 private:
  at::Tensor DownTensor(const at::Tensor& tensor);
  at::Tensor UpTensor(const at::Tensor& tensor);
  c10::Storage OriginalOf(const c10::StorageImpl* twin) const;

  struct TensorPair {
    at::Tensor twin, original;
  };
  struct StoragePair {
    c10::Storage twin, original;
  };
  std::vector<TensorPair> tensors_;
  std::vector<StoragePair> storages_;  // of arguments
  std::vector<StoragePair> newborn_;   // of results
};

}  // namespace legoai::sim
