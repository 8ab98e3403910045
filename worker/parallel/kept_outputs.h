// Selective checkpointing by operator: the forward of a checkpointed block keeps the outputs of some operators, and recomputation
// takes them instead of running these operators again (TorchTitan's selective_ac_option = "op").
//
// What is kept are tensors below autograd, so the graph of the forward is not held by them. Recomputation ends with the last
// tensor that autograd has saved; outputs made after that one are dropped when the forward ends. Collectives always run again.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/container/node_hash_map.h"
#include "core/process/mutex.h"
#include "worker/graph/recorder.h"

namespace legoai::parallel {

// The operators of one rule are counted together, from the first of a block's forward on.
struct KeepRule {
  std::vector<std::string> operators;  // "aten::mm"; none that writes to its arguments or gives views of them
  int64_t every = 1;                   // 2: the first, the third, ... keep their outputs
};

// Which operators keep their outputs. Thread-safe.
class KeepPolicy {
 public:
  explicit KeepPolicy(std::vector<KeepRule> rules) : rules_(std::move(rules)) {}

  // TorchTitan's list: every second matrix product from the first on, and attention. Products with a bias count as products (its
  // models have none). Here attention is lego::attention on every device.
  static const KeepPolicy& Op();

  struct Facts {
    const KeepRule* rule = nullptr;  // null: nothing is kept
    size_t rule_index = 0;
    std::vector<uint16_t> written;  // places of arguments written in place
  };
  const Facts& FactsOf(const c10::OperatorHandle& op) const;
  size_t rule_count() const { return rules_.size(); }

 private:
  const std::vector<KeepRule> rules_;
  mutable Mutex mutex_;
  mutable absl::node_hash_map<const c10::OperatorName*, Facts> facts_ ABSL_GUARDED_BY(mutex_);
};

// The kept outputs of one forward of one block. Used by one thread at a time.
class KeptOutputs final : public graph::OperatorHook {
 public:
  // `policy` is not owned. `saved` gives how many tensors autograd has saved so far in this forward; `where` names the block in
  // errors and is not owned.
  KeptOutputs(const KeepPolicy* policy, std::function<size_t()> saved, const std::string* where)
      : policy_(policy), saved_(std::move(saved)), where_(where), counts_(policy->rule_count()) {}

  // The forward is over: what recomputation will not reach is dropped.
  void EndForward();
  // From now on kept outputs are given back, in the order of the forward.
  void BeginRecomputation();

  // Throws c10::Error where recomputation runs other operators than the forward, or where a kept output that is needed was
  // written in place meanwhile.
  void OnOperator(const c10::OperatorHandle& op, torch::jit::Stack* stack, absl::FunctionRef<void()> run) override;

 private:
  struct Kept {
    const c10::OperatorName* op;
    std::vector<c10::IValue> outputs;
    size_t saved_before;  // tensors that autograd had saved
    bool written = false;
  };
  void Keep(const c10::OperatorHandle& op, const torch::jit::Stack& stack);
  void GiveBack(const c10::OperatorHandle& op, torch::jit::Stack* stack);
  void NoteWrites(const KeepPolicy::Facts& facts, const c10::OperatorHandle& op, const torch::jit::Stack& stack);

  const KeepPolicy* const policy_;
  const std::function<size_t()> saved_;
  const std::string* const where_;
  std::vector<int64_t> counts_;  // by rule: operators seen in this pass
  std::vector<Kept> kept_;
  bool gives_back_ = false;
  size_t given_ = 0;
};

}  // namespace legoai::parallel
