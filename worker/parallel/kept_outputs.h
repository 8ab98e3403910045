// Selective checkpointing by operator: the forward of a checkpointed block keeps the outputs of some operators
// (core/recipe/keep_policy.h), and recomputation takes them instead of running these operators again.
//
// What is kept are tensors below autograd, so the graph of the forward is not held by them. Recomputation ends with the last
// tensor that autograd has saved; outputs made after that one are dropped when the forward ends. Collectives run again, but for
// those of context parallelism's attention where its output is kept.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/node_hash_map.h"
#include "core/process/mutex.h"
#include "core/recipe/keep_policy.h"
#include "worker/graph/recorder.h"

namespace legoai::parallel {

// The rules, and how they apply to each operator. Thread-safe.
class KeepPolicy {
 public:
  using Shape = std::array<int64_t, 2>;  // [in, out] of the weight of a product
  // Products with weights of the shapes `forced` are always recomputed and not counted.
  explicit KeepPolicy(std::vector<KeepRule> rules, std::vector<Shape> forced = {})
      : rules_(std::move(rules)), forced_(std::move(forced)) {}

  struct Facts {
    std::vector<size_t> rules;      // those that name it
    std::vector<uint16_t> written;  // positions of arguments written in place
  };
  const Facts& FactsOf(const c10::OperatorHandle& op) const;
  const std::vector<KeepRule>& rules() const { return rules_; }
  // `arguments` are the operator's.
  bool IsForcedAgain(const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> arguments) const;

 private:
  const std::vector<KeepRule> rules_;
  const std::vector<Shape> forced_;
  mutable Mutex mutex_;
  mutable absl::node_hash_map<const c10::OperatorName*, Facts> facts_ ABSL_GUARDED_BY(mutex_);
};

// The kept outputs of one forward of one block. Used by one thread at a time.
class KeptOutputs final : public graph::OperatorHook {
 public:
  // `saved` returns how many tensors autograd has saved so far in this forward; `block` is the path of the block, not owned.
  KeptOutputs(std::shared_ptr<const KeepPolicy> policy, std::function<size_t()> saved, const std::string* block)
      : policy_(std::move(policy)), saved_(std::move(saved)), block_(block), counts_(policy_->rules().size()) {}

  // The forward is over: drops what recomputation will not reach.
  void EndForward();
  // From now on kept outputs are returned, in the order of the forward.
  void BeginRecomputation();

  // Throws c10::Error if recomputation runs other operators than the forward, or if a needed output was modified in place
  // meanwhile.
  void OnOperator(const c10::OperatorHandle& op, torch::jit::Stack* stack, absl::FunctionRef<void()> run) override;

 private:
  struct Kept {
    const c10::OperatorName* op;
    std::vector<c10::IValue> outputs;
    size_t saved_before;  // tensors that autograd had saved
    bool written = false;
  };
  bool Keeps(const KeepPolicy::Facts& facts, const c10::OperatorHandle& op, const torch::jit::Stack& stack);  // and counts
  void Keep(const c10::OperatorHandle& op, const torch::jit::Stack& stack);
  void GiveBack(const c10::OperatorHandle& op, torch::jit::Stack* stack);
  void NoteWrites(const KeepPolicy::Facts& facts, const c10::OperatorHandle& op, const torch::jit::Stack& stack);

  const std::shared_ptr<const KeepPolicy> policy_;
  const std::function<size_t()> saved_;
  const std::string* const block_;
  std::vector<int64_t> counts_;  // by rule: its operators so far, in this pass
  std::vector<Kept> kept_;
  bool gives_back_ = false;
  size_t given_ = 0;
};

}  // namespace legoai::parallel
