// The parts of a Trace of a few microbatches (instance_actions.h): which instructions belong to which action, to which microbatch
// of which chunk each storage belongs, and whether the two microbatches that represent all others are alike. Torch-free. Not
// thread-safe.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/schedule/lowering.h"
#include "core/trace/trace.h"

namespace legoai::sim {

// How a rank computes a microbatch's backwards: for each of its chunks, whether weight gradients are separate.
using Variant = std::vector<bool>;

// Captured microbatches by label: 0, 1, ... in order. Those below `steady` are special, and so is `last`; in between, two labels
// per variant represent all other microbatches.
struct Labels {
  int64_t microbatches = 1;  // of the step
  int steady = 0, last = 0;

  // `of_microbatch`: variants of the captured rank.
  Labels(int64_t ranks, std::vector<Variant> of_microbatch);
  bool AllCaptured() const { return microbatches <= last + 1; }
  // The label of the microbatch, or of the one it is a copy of.
  int Of(int64_t microbatch) const;
  // The label of a captured microbatch: its number, except for the last one.
  int OfCaptured(int64_t number) const { return number + 1 == microbatches ? std::min<int64_t>(last, number) : number; }
  // Whether it is the second of two representatives.
  bool IsNext(int label) const { return label > steady && label < last && (label - steady) % 2 == 1; }
  bool IsSteady(int label) const { return label >= steady && label < last && !IsNext(label); }
  // The microbatch whose storages are meant when `microbatch` uses those of a label; -1: it must not. `microbatch` equal to their
  // number: outside all microbatches.
  int64_t MicrobatchOf(int label, int64_t microbatch) const;
  const Variant& VariantOf(int label) const;

 private:
  std::vector<Variant> of_microbatch_;
  std::vector<Variant> variants_ = {Variant()};  // of those that others represent
};
inline constexpr int kNoMicrobatch = -1;

class CapturedActions {
 public:
  // `trace` must outlive it. FailedPrecondition: why the Trace cannot be split, or how the steady microbatches differ.
  static absl::StatusOr<CapturedActions> Read(const graph::Trace& trace, const std::vector<parallel::LoweredAction>& actions,
                                              const Labels& labels);

  // Instructions [begin, end). Frees after the last operator of a part belong to it.
  struct Part {
    uint32_t begin = 0, end = 0;
    uint32_t before = 0;  // for the second steady one: where the part of the first begins
  };
  size_t size() const { return parts_.size(); }  // actions
  Part prologue() const { return prologue_; }
  Part epilogue() const { return epilogue_; }
  // Of the captured action like `action`, for the microbatch with this label.
  std::optional<Part> Find(const parallel::LoweredAction& action, int label) const;

  uint32_t initial_storages() const { return initial_storages_; }  // inputs, bound before the step; they come first
  // The microbatch in whose part a storage first appears; kNoMicrobatch: outside, or an input.
  int Home(uint32_t storage) const { return homes_[storage]; }
  // The chunk in whose action that is; 0 outside.
  int32_t ChunkOf(uint32_t storage) const { return chunks_[storage]; }
  // Its number among the storages of its chunk's microbatch.
  uint32_t Local(uint32_t storage) const { return locals_[storage]; }
  uint32_t StoragesOf(int32_t chunk, int label) const { return counts_[chunk][label]; }
  int32_t chunks() const { return static_cast<int32_t>(counts_.size()); }  // above every chunk's number

 private:
  CapturedActions(const graph::Trace& trace, const Labels& labels) : trace_(&trace), labels_(labels) {}
  absl::Status Split(const std::vector<parallel::LoweredAction>& actions);
  absl::Status FindHomes();
  absl::Status Settle(Part part, int32_t chunk, int label);
  absl::Status Align();
  bool Alike(const graph::Instruction& before, const graph::Instruction& after) const;
  bool Alike(const graph::Argument& before, const graph::Argument& after) const;
  bool AlikeValues(int64_t before, int64_t after) const;
  bool AlikeConstants(const graph::Constant& before, const graph::Constant& after) const;
  bool AlikeStorages(uint32_t before, uint32_t after) const;

  const graph::Trace* trace_;
  Labels labels_;
  Part prologue_, epilogue_;
  struct ActionPart {
    parallel::LoweredAction action;
    int label;
    Part part;
  };
  std::vector<ActionPart> parts_;  // in captured order
  std::vector<int8_t> homes_;
  std::vector<int32_t> chunks_;
  std::vector<uint32_t> locals_;
  std::vector<std::vector<uint32_t>> counts_;  // by chunk and label
  uint32_t initial_storages_ = 0;
};

}  // namespace legoai::sim
