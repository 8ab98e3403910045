// The parts of a Trace of a few microbatches (instance_actions.h): which instructions belong to which action, to which microbatch
// each storage belongs, and whether the two that stand for all others are alike. Torch-free. Not thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "simulator/capture/instance_actions.h"
#include "worker/graph/trace.h"
#include "worker/parallel/pipeline/lowering.h"

namespace legoai::sim {

// Labels of the captured microbatches: below kSteady they are special, kSteady and the next stand for all in between.
inline constexpr int kNoMicrobatch = -1, kSteady = 3, kNextSteady = 4, kLastMicrobatch = 5;

class CapturedActions {
 public:
  // `trace` must outlive it. `align`: whether two microbatches stand for others. FailedPrecondition: why the Trace cannot be
  // taken apart, or how microbatches differ.
  static absl::StatusOr<CapturedActions> Read(const graph::Trace& trace, const std::vector<parallel::LoweredAction>& actions,
                                              bool align);

  // Instructions [begin, end). What dies after the last operator of a part belongs to it.
  struct Part {
    uint32_t begin = 0, end = 0;
    uint32_t before = 0;  // of kNextSteady: where the part of kSteady begins
  };
  Part prologue() const { return prologue_; }
  Part epilogue() const { return epilogue_; }
  // Of the action that is like `action`, of the microbatch with this label.
  std::optional<Part> Find(const parallel::LoweredAction& action, int label) const;

  uint32_t initial_storages() const { return initial_storages_; }  // inputs, bound before the step; they come first
  // The microbatch in whose part a storage is mentioned first; kNoMicrobatch: outside, or an input.
  int Home(uint32_t storage) const { return homes_[storage]; }
  // Its number among the storages of its microbatch.
  uint32_t Local(uint32_t storage) const { return locals_[storage]; }
  uint32_t StoragesOf(int label) const { return counts_[label]; }

 private:
  explicit CapturedActions(const graph::Trace& trace) : trace_(&trace) {}
  absl::Status Split(const std::vector<parallel::LoweredAction>& actions);
  absl::Status FindHomes();
  absl::Status Settle(Part part, int label);
  absl::Status Align();
  bool Alike(const graph::Instruction& before, const graph::Instruction& after) const;
  bool Alike(const graph::Argument& before, const graph::Argument& after) const;
  bool AlikeValues(int64_t before, int64_t after) const;
  bool AlikeConstants(const graph::Constant& before, const graph::Constant& after) const;
  bool AlikeStorages(uint32_t before, uint32_t after) const;

  const graph::Trace* trace_;
  Part prologue_, epilogue_;
  struct ActionPart {
    parallel::LoweredAction action;
    int label;
    Part part;
  };
  std::vector<ActionPart> parts_;  // in captured order
  std::vector<int8_t> homes_;
  std::vector<uint32_t> locals_;
  std::array<uint32_t, kCapturedMicrobatches> counts_{};
  uint32_t initial_storages_ = 0;
};

}  // namespace legoai::sim
