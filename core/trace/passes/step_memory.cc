#include "core/trace/passes/step_memory.h"

#include <algorithm>

#include "core/operators/operator_table.h"
#include "core/trace/live_bytes.h"
#include "core/trace/passes/rewriter.h"

namespace legoai::graph {
namespace {

bool TakesNothingInside(const Trace& trace, const Instruction& instruction) {
  if (instruction.kind != Instruction::Kind::kOperator || IsViewOf(trace, instruction)) return true;
  const sim::OperatorRow* const row = sim::FindOperator(trace.OperatorName(instruction));
  return row != nullptr && row->workspace == sim::WorkspaceRule::kNone;
}

}  // namespace

StepMemory::StepMemory(const Trace& trace) : held_(trace.storages.size()) {
  const auto count = static_cast<uint32_t>(trace.instructions.size());
  for (const Storage& storage : trace.storages) bytes_.push_back(storage.bytes);
  std::vector<char> is_born(trace.storages.size());
  LiveBytes live(trace);
  for (uint32_t i = 0; i < count; ++i) {
    const Instruction& instruction = trace.instructions[i];
    live_.push_back(live.total());
    live.Run(instruction);
    live_.push_back(live.total());
    for (const uint32_t storage : StoragesOf(trace, instruction)) {
      if (!is_born[storage]) held_[storage] = {AtOf(i), AtOf(count)};
      is_born[storage] = true;
    }
    if (instruction.kind == Instruction::Kind::kFree) held_[instruction.immediate].until = AtOf(i);
  }
  live_.push_back(live.total());
  peak_ = *std::max_element(live_.begin(), live_.end());
  most_.assign(live_.size(), peak_);
  for (uint32_t i = 0; i < count; ++i) {
    if (!TakesNothingInside(trace, trace.instructions[i])) most_[AtOf(i)] = live_[AtOf(i)];
  }
}

bool StepMemory::TryChange(const std::map<uint32_t, Held>& held, const std::vector<uint32_t>& removed) {
  std::map<int64_t, int64_t> steps;  // by place in time: by how much the change rises there
  const auto add = [&](const Held& when, int64_t bytes) {
    if (when.from >= when.until) return;
    steps[when.from] += bytes;
    steps[when.until] -= bytes;
  };
  for (const auto& [storage, when] : held) {
    add(held_[storage], -bytes_[storage]);
    add(when, bytes_[storage]);
  }
  const auto end = static_cast<int64_t>(live_.size());
  const auto for_each = [&](auto f) {
    int64_t more = 0;
    for (auto step = steps.begin(); step != steps.end(); ++step) {
      more += step->second;
      const int64_t until = std::next(step) == steps.end() ? end : std::min(end, std::next(step)->first);
      for (int64_t at = step->first; more != 0 && at < until; ++at) f(at, more);
    }
  };
  const auto is_removed = [&](int64_t at) {
    return at % 2 == 1 && std::binary_search(removed.begin(), removed.end(), static_cast<uint32_t>(at / 2));
  };
  bool stays_within = true;
  for_each([&](int64_t at, int64_t more) {
    if (more > 0 && live_[at] + more > (is_removed(at) ? peak_ : most_[at])) stays_within = false;
  });
  if (!stays_within) return false;
  for_each([&](int64_t at, int64_t more) { live_[at] += more; });
  for (const auto& [storage, when] : held) held_[storage] = when;
  for (const uint32_t i : removed) most_[AtOf(i)] = peak_;
  return true;
}

}  // namespace legoai::graph
