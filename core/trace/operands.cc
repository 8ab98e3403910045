#include "core/trace/operands.h"

namespace legoai::graph {

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

}  // namespace legoai::graph
