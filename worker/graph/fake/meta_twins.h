// The arguments of one operator call as twins on the meta device, and the way back for results. Internal to the fake device.
//
// Tensors that share a storage have twins that share one. What a Meta kernel does to a twin (resize, another geometry, another
// storage) is done to the original afterwards.
#pragma once

#include <ATen/core/ivalue.h>
#include <c10/core/Storage.h>

#include <utility>
#include <vector>

namespace legoai::sim {

// A storage of the CPU without memory.
c10::Storage MakeFakeStorage(size_t bytes);

class MetaTwins {
 public:
  // The argument with twins in place of tensors; other values as they are.
  c10::IValue Down(const c10::IValue& value);
  // Carries over to the originals what the kernel did to twins. True if it did anything.
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
