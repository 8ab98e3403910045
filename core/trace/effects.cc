#include "core/trace/effects.h"

#include <algorithm>

namespace legoai::graph {
namespace {

const EffectRow* EffectOf(const Trace& trace, const Instruction& instruction) {
  return instruction.kind == Instruction::Kind::kOperator ? FindEffect(trace.OperatorName(instruction)) : nullptr;
}

bool IsMissing(const InstructionView& op, int place) { return place >= 0 && !op.Constant<int64_t>(place); }

}  // namespace

Operands OperandsOf(const Trace& trace, const Instruction& instruction) {
  Operands operands;
  if (instruction.kind != Instruction::Kind::kOperator) return operands;
  const uint64_t writes = trace.operators[instruction.operator_index].writes;
  for (uint32_t i = 0; i < instruction.argument_count; ++i) {
    auto& column = i < 64 && (writes >> i & 1) ? operands.writes : operands.reads;
    ForEachValue(trace, trace.arguments[instruction.first_argument + i], [&](uint32_t value) { column.push_back(value); });
  }
  for (uint32_t i = 0; i < instruction.result_count; ++i) {
    const Argument& result = trace.results[instruction.first_result + i];
    operands.has_host_result |= result.kind == Argument::Kind::kConstant;
    ForEachValue(trace, result, [&](uint32_t value) { operands.results.push_back(value); });
  }
  return operands;
}

const std::vector<EffectRow>& EffectRows() {
  static const auto* const rows = new std::vector<EffectRow>{
      {.name = "lego::all_gather_into", .label = "all_gather", .effect = Effect::kAllGather, .tensor = 0, .group = 2},
      {.name = "lego::reduce_scatter_into", .label = "reduce_scatter", .effect = Effect::kReduceScatter, .tensor = 1, .group = 2},
      {.name = "lego::all_reduce_", .label = "all_reduce", .effect = Effect::kAllReduce, .tensor = 0, .group = 1},
      {.name = "lego::all_to_all_into", .label = "all_to_all", .effect = Effect::kAllToAll, .tensor = 0, .group = 2},
      {.name = "lego::rotate_into", .label = "rotate", .effect = Effect::kRotate, .tensor = 0, .group = 2},
      {.name = "lego::broadcast_", .label = "broadcast", .effect = Effect::kBroadcast, .tensor = 0, .group = 1},
      {.name = "lego::send", .label = "send", .effect = Effect::kSend, .tensor = 0, .group = 1, .peer = 2},
      {.name = "lego::recv", .label = "recv", .effect = Effect::kRecv, .tensor = 0, .group = 1, .peer = 2},
      {.name = "lego::record_event", .label = "record_event", .effect = Effect::kRecordEvent, .stream = 0, .event = 1},
      {.name = "lego::wait_event", .label = "wait_event", .effect = Effect::kWaitEvent, .stream = 0, .event = 1},
      {.name = "lego::resize_storage_", .label = "resize_storage", .effect = Effect::kResizeStorage, .tensor = 0, .bytes = 1},
  };
  return *rows;
}

const EffectRow* FindEffect(std::string_view name) {
  if (name.substr(0, 6) != "lego::") return nullptr;  // asked of every instruction
  const auto& rows = EffectRows();
  const auto found = std::find_if(rows.begin(), rows.end(), [&](const EffectRow& row) { return row.name == name; });
  return found == rows.end() ? nullptr : &*found;
}

std::optional<EventUse> EventOf(const Trace& trace, const Instruction& instruction) {
  const EffectRow* const row = EffectOf(trace, instruction);
  if (row == nullptr || !row->IsEvent()) return std::nullopt;
  const InstructionView op(trace, instruction);
  const auto stream = op.Constant<int64_t>(row->stream), event = op.Constant<int64_t>(row->event);
  if (!stream || !event) return std::nullopt;
  return EventUse{row->effect == Effect::kRecordEvent, *stream, *event};
}

std::optional<StorageResize> StorageResizeOf(const Trace& trace, const Instruction& instruction) {
  const EffectRow* const row = EffectOf(trace, instruction);
  if (row == nullptr || row->effect != Effect::kResizeStorage) return std::nullopt;
  const InstructionView op(trace, instruction);
  const Value* const tensor = op.Input(row->tensor);
  const auto bytes = op.Constant<int64_t>(row->bytes);
  if (tensor == nullptr || !bytes) return std::nullopt;
  return StorageResize{tensor->storage, *bytes};
}

const char* MissingOperand(const Trace& trace, const Instruction& instruction) {
  const EffectRow* const row = EffectOf(trace, instruction);
  if (row == nullptr) return nullptr;
  const InstructionView op(trace, instruction);
  if (row->tensor >= 0 && op.Input(row->tensor) == nullptr) return "no tensor";
  if (IsMissing(op, row->stream) || IsMissing(op, row->event)) return "no stream or event";
  if (IsMissing(op, row->bytes)) return "no size";
  if (!row->IsCommunication()) return nullptr;
  const auto group = op.Constant<int64_t>(row->group);
  if (!group || *group < 0 || *group >= static_cast<int64_t>(trace.groups.size())) return "no group of the Trace";
  if (!row->IsMessage()) return nullptr;
  const auto peer = op.Constant<int64_t>(row->peer);
  return !peer || *peer < 0 || *peer >= trace.groups[*group].ranks.size ? "no peer of its group" : nullptr;
}

}  // namespace legoai::graph
