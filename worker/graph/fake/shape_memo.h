// Caches an operator's results by the geometries and constants of its arguments, so that the layers of a model after the first
// need no shape inference. Internal to the fake device.
//
// The key is exact: operator, constants by type and bits, and of each tensor dtype, sizes, strides, offset, storage size,
// dispatch keys and which of the call's tensors share a storage. Calls that change an argument's geometry or storage, or return a
// host value, are not cached. Not thread-safe; one call at a time.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"

namespace legoai::sim {

class ShapeMemo {
 public:
  // If this call is known: consumes the arguments, leaves the results, and returns true. Otherwise the stack is unchanged, and
  // Remember() may follow.
  bool Replay(const c10::OperatorHandle& op, torch::jit::Stack* stack, size_t base);
  // Stores the results on the stack for the last call passed to Replay(). The argument tensors must still be alive and unchanged.
  void Remember(const c10::OperatorHandle& op, const torch::jit::Stack& stack);

 private:
  struct TensorPlan {
    enum class Kind : uint8_t { kUndefined, kArgument, kView, kNew };
    Kind kind = Kind::kUndefined;
    uint32_t source = 0;  // kArgument: tensor of the call; kView: tensor whose storage and keys it has; kNew: new storage
    size_t new_bytes = 0;
    caffe2::TypeMeta dtype;
    int64_t offset = 0;
    std::vector<int64_t> sizes, strides;
  };
  struct ResultPlan {
    bool is_list = false;
    std::vector<TensorPlan> tensors;
  };
  using Plan = std::vector<ResultPlan>;

  bool MakeKey(const c10::OperatorHandle& op, const torch::jit::Stack& stack, size_t base);
  bool AddToKey(const c10::IValue& value);
  void AddTensorToKey(const at::Tensor& tensor);
  bool PlanFor(const at::Tensor& result, TensorPlan* plan);
  at::Tensor Make(const TensorPlan& plan);

  std::vector<int64_t> key_;  // of the last call passed to Replay(); empty if it cannot be cached
  std::vector<at::TensorImpl*> tensors_;
  std::vector<c10::StorageImpl*> new_storages_;
  std::vector<c10::Storage> made_;
  torch::jit::Stack results_;  // of a call that is replayed: its memory is used again
  absl::flat_hash_map<std::vector<int64_t>, Plan> plans_;
};

}  // namespace legoai::sim
