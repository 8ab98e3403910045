// What an instruction touches, read off a Trace. Torch-free; pure functions.
#pragma once

#include <cstdint>
#include <vector>

#include "core/trace/trace.h"

namespace legoai::graph {

// Value ids. A written argument is in `writes` only, though most operators that write it read it too; undefined tensors and
// None are left out.
struct Operands {
  std::vector<uint32_t> reads, writes, results;
  bool has_host_result = false;  // a result that is no tensor
};
Operands OperandsOf(const Trace& trace, const Instruction& instruction);

// Calls `visit` with each value id of an argument or result.
template <class Visit>
void ForEachValue(const Trace& trace, const Argument& argument, Visit visit) {
  if (argument.kind == Argument::Kind::kValue) visit(argument.index);
  if (argument.kind != Argument::Kind::kList && argument.kind != Argument::Kind::kOptionalList) return;
  for (int64_t value : trace.lists[argument.index]) {
    if (value >= 0) visit(static_cast<uint32_t>(value));
  }
}

}  // namespace legoai::graph
