#include "simulator/capture/captured_actions.h"

#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/trace/effects.h"
#include "proto/status.h"

namespace legoai::sim {
namespace {

using graph::Argument;
using graph::Instruction;
using parallel::LoweredAction;

absl::Status Cannot(const std::string& why) { return absl::FailedPreconditionError(why); }

}  // namespace

// Without a pipeline a gradient's reduction ends in the next microbatch, so the second one is special too.
Labels::Labels(int64_t ranks, std::vector<Variant> of_microbatch)
    : microbatches(static_cast<int64_t>(of_microbatch.size())),
      steady(ranks > 1 ? 1 : 2),
      of_microbatch_(std::move(of_microbatch)) {
  if (microbatches > steady + 1) {
    const std::set<Variant> between(of_microbatch_.begin() + steady, of_microbatch_.end() - 1);
    variants_.assign(between.begin(), between.end());
  }
  last = steady + 2 * static_cast<int>(variants_.size());
}

int Labels::Of(int64_t microbatch) const {
  if (AllCaptured()) return static_cast<int>(microbatch);
  if (microbatch + 1 == microbatches) return last;
  // Of one variant the first steady one is itself.
  if (microbatch < steady || variants_.size() == 1) return static_cast<int>(std::min<int64_t>(microbatch, steady + 1));
  const auto variant = std::lower_bound(variants_.begin(), variants_.end(), of_microbatch_[microbatch]);
  return steady + 2 * static_cast<int>(variant - variants_.begin()) + 1;
}

int64_t Labels::MicrobatchOf(int label, int64_t microbatch) const {
  const bool outside = microbatch == microbatches;
  const int own = outside ? kNoMicrobatch : Of(microbatch);
  if (label == own) return microbatch;
  if (label < steady || AllCaptured()) return label < microbatches ? label : -1;  // the same for all
  if (variants_.size() == 1 && label == steady && own == steady + 1) return microbatch - 1;
  if (variants_.size() == 1 && label == steady + 1 && (own == last || outside)) return microbatches - 2;
  return label == last && outside ? microbatches - 1 : -1;
}

const Variant& Labels::VariantOf(int label) const {
  if (AllCaptured() || label < steady) return of_microbatch_[label];
  return label == last ? of_microbatch_.back() : variants_[(label - steady) / 2];
}

absl::StatusOr<CapturedActions> CapturedActions::Read(const graph::Trace& trace, const std::vector<LoweredAction>& actions,
                                                      const Labels& labels) {
  if (!trace.warnings.empty()) return Cannot(absl::StrCat("the capture warns: ", trace.warnings[0]));
  CapturedActions captured(trace, labels);
  RETURN_IF_ERROR(captured.Split(actions));
  RETURN_IF_ERROR(captured.FindHomes());
  if (labels.AllCaptured()) return captured;
  RETURN_IF_ERROR(captured.Align());
  return captured;
}

absl::Status CapturedActions::Split(const std::vector<LoweredAction>& actions) {
  const auto& instructions = trace_->instructions;
  const uint32_t count = instructions.size();
  for (const LoweredAction& action : actions) {
    parts_.push_back({action, labels_.OfCaptured(action.microbatch), {}});
    if (action.chunk >= chunks()) counts_.resize(action.chunk + 1, std::vector<uint32_t>(labels_.last + 1, 0));
  }
  // Of the prologue, the actions and the epilogue: where the first operator is.
  std::vector<uint32_t> begins(actions.size() + 2, count);
  begins[0] = 0;
  size_t now = 0;
  for (uint32_t i = 0; i < count; ++i) {
    if (instructions[i].kind == Instruction::Kind::kFree) continue;
    const int32_t action = instructions[i].action;
    const size_t part = action >= 0 ? action + 1 : (now == 0 ? 0 : actions.size() + 1);
    if (part == now) continue;
    if (part != now + 1) return Cannot(absl::StrCat("instruction ", i, " is not of the action that comes next"));
    begins[now = part] = i;
  }
  if (now + 1 < begins.size()) return Cannot("an action has no operator");
  prologue_ = {0, begins[1]};
  for (size_t i = 0; i < parts_.size(); ++i) parts_[i].part = {begins[i + 1], begins[i + 2]};
  epilogue_ = {begins.back(), count};
  return absl::OkStatus();
}

absl::Status CapturedActions::FindHomes() {
  for (const auto& [_, value] : trace_->inputs) {
    initial_storages_ = std::max(initial_storages_, trace_->values[value].storage + 1);
  }
  homes_.assign(initial_storages_, kNoMicrobatch);
  chunks_.assign(initial_storages_, 0);
  locals_.assign(initial_storages_, 0);
  absl::Status status = Settle(prologue_, 0, kNoMicrobatch);
  for (const ActionPart& part : parts_) status.Update(Settle(part.part, part.action.chunk, part.label));
  status.Update(Settle(epilogue_, 0, kNoMicrobatch));
  if (status.ok() && homes_.size() != trace_->storages.size()) return Cannot("a storage is never mentioned");
  return status;
}

absl::Status CapturedActions::Settle(Part part, int32_t chunk, int label) {
  bool in_order = true;
  const auto mention = [&](int, uint32_t value) {
    const uint32_t storage = trace_->values[value].storage;
    if (storage < homes_.size()) return;
    in_order = in_order && storage == homes_.size();
    homes_.push_back(static_cast<int8_t>(label));
    chunks_.push_back(chunk);
    locals_.push_back(label == kNoMicrobatch ? 0 : counts_[chunk][label]++);
  };
  for (uint32_t i = part.begin; i < part.end; ++i) {
    if (trace_->instructions[i].kind != Instruction::Kind::kOperator) continue;
    const graph::InstructionView view(*trace_, trace_->instructions[i]);
    view.ForEachInput(mention);
    view.ForEachResult(mention);
  }
  return in_order ? absl::OkStatus() : Cannot("storages are not numbered in the order of their creation");
}

std::optional<CapturedActions::Part> CapturedActions::Find(const LoweredAction& action, int label) const {
  for (const ActionPart& part : parts_) {
    const LoweredAction& it = part.action;
    if (part.label != label || it.kind != action.kind || it.chunk != action.chunk || it.link != action.link) continue;
    if (it.reduce_gradients != action.reduce_gradients) return std::nullopt;
    return part.part;
  }
  return std::nullopt;
}

absl::Status CapturedActions::Align() {
  for (ActionPart& after : parts_) {
    if (!labels_.IsNext(after.label)) continue;
    const auto before = Find(after.action, after.label - 1);
    const uint32_t length = after.part.end - after.part.begin;
    if (!before || before->end - before->begin != length) return Cannot("microbatches have different actions");
    after.part.before = before->begin;
    for (uint32_t i = 0; i < length; ++i) {
      if (!Alike(trace_->instructions[before->begin + i], trace_->instructions[after.part.begin + i])) {
        return Cannot(absl::StrCat("instructions ", before->begin + i, " and ", after.part.begin + i,
                                   " of equal actions differ: ", trace_->Line(trace_->instructions[before->begin + i], false),
                                   " | ", trace_->Line(trace_->instructions[after.part.begin + i], false)));
      }
    }
  }
  return absl::OkStatus();
}

bool CapturedActions::Alike(const Instruction& before, const Instruction& after) const {
  if (before.kind != after.kind) return false;
  if (before.kind == Instruction::Kind::kFree) {
    return AlikeStorages(static_cast<uint32_t>(before.immediate), static_cast<uint32_t>(after.immediate));
  }
  if (before.kind == Instruction::Kind::kResize) {
    return before.immediate == after.immediate && AlikeStorages(before.operator_index, after.operator_index);
  }
  if (before.operator_index != after.operator_index || before.stream != after.stream || before.phase != after.phase ||
      before.module != after.module || before.argument_count != after.argument_count ||
      before.result_count != after.result_count) {
    return false;
  }
  for (uint32_t i = 0; i < before.argument_count; ++i) {
    if (!Alike(trace_->arguments[before.first_argument + i], trace_->arguments[after.first_argument + i])) return false;
  }
  for (uint32_t i = 0; i < before.result_count; ++i) {
    if (!Alike(trace_->results[before.first_result + i], trace_->results[after.first_result + i])) return false;
  }
  return true;
}

bool CapturedActions::Alike(const Argument& before, const Argument& after) const {
  if (before.kind != after.kind) return false;
  switch (before.kind) {
    case Argument::Kind::kUndefined: return true;
    case Argument::Kind::kConstant:
    case Argument::Kind::kWrappedNumber:
      return before.index == after.index || AlikeConstants(trace_->constants[before.index], trace_->constants[after.index]);
    case Argument::Kind::kValue: return AlikeValues(before.index, after.index);
    case Argument::Kind::kList:
    case Argument::Kind::kOptionalList: break;
  }
  const std::vector<int64_t>&a = trace_->lists[before.index], &b = trace_->lists[after.index];
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [this](int64_t x, int64_t y) { return AlikeValues(x, y); });
}

// Integers may grow with the microbatch's number; nothing else may differ.
bool CapturedActions::AlikeConstants(const graph::Constant& before, const graph::Constant& after) const {
  if (std::holds_alternative<int64_t>(before)) return std::holds_alternative<int64_t>(after);
  const auto* a = std::get_if<std::vector<int64_t>>(&before);
  const auto* b = std::get_if<std::vector<int64_t>>(&after);
  return a != nullptr && b != nullptr && a->size() == b->size();
}

bool CapturedActions::AlikeValues(int64_t before, int64_t after) const {
  if (before < 0 || after < 0) return before == after;
  const graph::Value &a = trace_->values[before], &b = trace_->values[after];
  if (!AlikeStorages(a.storage, b.storage)) return false;
  if (a.geometry == b.geometry) return true;
  graph::Geometry moved = trace_->geometries[a.geometry];
  moved.offset = trace_->geometries[b.geometry].offset;
  return moved == trace_->geometries[b.geometry];
}

// The same one; or each microbatch's own, or that of the microbatch before it.
bool CapturedActions::AlikeStorages(uint32_t before, uint32_t after) const {
  const int home = Home(after);
  const bool steady = labels_.IsSteady(home);
  if (!labels_.IsNext(home) && !steady) return before == after;
  const graph::Storage &a = trace_->storages[before], &b = trace_->storages[after];
  const bool same_kind =
      a.bytes == b.bytes && a.kind == b.kind && a.category == b.category && b.kind == graph::StorageKind::kInner;
  const bool same_place = ChunkOf(before) == ChunkOf(after) && Local(before) == Local(after);
  return same_kind && Home(before) == home - 1 && (steady || same_place);
}

}  // namespace legoai::sim
