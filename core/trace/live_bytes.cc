#include "core/trace/live_bytes.h"

#include <algorithm>

#include "core/trace/effects.h"

namespace legoai::graph {

const char* CategoryText(Category category) {
  switch (category) {
    case Category::kOther: return "other";
    case Category::kShardedParameter: return "sharded parameter";
    case Category::kUnshardedParameter: return "unsharded parameter";
    case Category::kBuffer: return "buffer";
    case Category::kShardedGradient: return "sharded gradient";
    case Category::kUnshardedGradient: return "unsharded gradient";
    case Category::kActivation: return "activation";
    case Category::kActivationGradient: return "activation gradient";
    case Category::kOptimizerState: return "optimizer state";
    case Category::kInput: return "input";
    case Category::kAllGatherBuffer: return "all gather buffer";
    case Category::kReduceScatterBuffer: return "reduce scatter buffer";
  }
  return "other";
}

LiveBytes::LiveBytes(const Trace& trace) : trace_(trace), bytes_(trace.storages.size(), -1) {
  for (uint32_t id = 0; id < bytes_.size(); ++id) {
    if (trace.storages[id].kind == StorageKind::kExternal) Resize(id, trace.storages[id].bytes);
  }
}

void LiveBytes::Run(const Instruction& instruction) {
  switch (instruction.kind) {
    case Instruction::Kind::kFree: return Resize(static_cast<uint32_t>(instruction.immediate), 0);
    case Instruction::Kind::kResize: return Resize(instruction.operator_index, instruction.immediate);
    case Instruction::Kind::kOperator: break;
  }
  const InstructionView op(trace_, instruction);
  op.ForEachInput([this](int, uint32_t value) { Mention(value); });
  op.ForEachResult([this](int, uint32_t value) { Mention(value); });
  if (const auto resize = StorageResizeOf(trace_, instruction)) Resize(resize->storage, resize->bytes);
}

void LiveBytes::Mention(uint32_t value) {
  const uint32_t storage = trace_.values[value].storage;
  if (bytes_[storage] < 0) Resize(storage, trace_.storages[storage].bytes);
}

void LiveBytes::Resize(uint32_t storage, int64_t bytes) {
  const int64_t more = bytes - std::max<int64_t>(0, bytes_[storage]);
  bytes_[storage] = bytes;
  by_category_[static_cast<size_t>(trace_.storages[storage].category)] += more;
  total_ += more;
}

}  // namespace legoai::graph
