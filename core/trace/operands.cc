#include "core/trace/operands.h"

namespace legoai::graph {
namespace {

int64_t IntegerArgument(const Trace& trace, const Instruction& instruction, uint32_t index) {
  return std::get<int64_t>(trace.constants[trace.arguments[instruction.first_argument + index].index]);
}

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

std::optional<EventUse> EventOf(const Trace& trace, const Instruction& instruction) {
  if (instruction.kind != Instruction::Kind::kOperator) return std::nullopt;
  const std::string& name = trace.OperatorName(instruction);
  const bool is_record = name == "lego::record_event";
  if (!is_record && name != "lego::wait_event") return std::nullopt;
  return EventUse{is_record, IntegerArgument(trace, instruction, 0), IntegerArgument(trace, instruction, 1)};
}

std::optional<StorageResize> StorageResizeOf(const Trace& trace, const Instruction& instruction) {
  if (instruction.kind != Instruction::Kind::kOperator) return std::nullopt;
  if (trace.OperatorName(instruction) != "lego::resize_storage_") return std::nullopt;
  const Argument& tensor = trace.arguments[instruction.first_argument];
  return StorageResize{trace.values[tensor.index].storage, IntegerArgument(trace, instruction, 1)};
}

}  // namespace legoai::graph
