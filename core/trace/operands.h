// What an instruction touches, read off a Trace. Pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
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

// Reads the arguments and results of one instruction of a Trace.
//
// Holds references: Trace and Instruction must outlive it. Thread-safety: const.
class InstructionView {
 public:
  InstructionView(const Trace& trace, const Instruction& instruction) : trace_(trace), instruction_(instruction) {}

  const Trace& trace() const { return trace_; }
  const Instruction& instruction() const { return instruction_; }
  const std::string& name() const { return trace_.OperatorName(instruction_); }
  uint64_t writes() const { return trace_.operators[instruction_.operator_index].writes; }
  int argument_count() const { return instruction_.argument_count; }
  int result_count() const { return instruction_.result_count; }

  // The tensor at a place; null if something else is there, or there is no such place.
  const Value* Input(int i) const { return At(trace_.arguments, instruction_.first_argument, instruction_.argument_count, i); }
  const Value* Result(int i) const { return At(trace_.results, instruction_.first_result, instruction_.result_count, i); }
  const Geometry& GeometryOf(const Value& value) const { return trace_.geometries[value.geometry]; }

  // The constant at a place, if it is of that type.
  template <class T>
  std::optional<T> Constant(int i) const {
    if (i < 0 || i >= instruction_.argument_count) return std::nullopt;
    const Argument& argument = trace_.arguments[instruction_.first_argument + i];
    if (argument.kind != Argument::Kind::kConstant && argument.kind != Argument::Kind::kWrappedNumber) return std::nullopt;
    const T* value = std::get_if<T>(&trace_.constants[argument.index]);
    return value == nullptr ? std::nullopt : std::optional<T>(*value);
  }

  // Calls f(place, value id) for each tensor, those in lists included.
  template <class F>
  void ForEachInput(F f) const {
    ForEach(trace_.arguments, instruction_.first_argument, instruction_.argument_count, f);
  }
  template <class F>
  void ForEachResult(F f) const {
    ForEach(trace_.results, instruction_.first_result, instruction_.result_count, f);
  }

 private:
  const Value* At(const std::vector<Argument>& column, uint32_t first, int count, int i) const {
    if (i < 0 || i >= count || column[first + i].kind != Argument::Kind::kValue) return nullptr;
    return &trace_.values[column[first + i].index];
  }
  template <class F>
  void ForEach(const std::vector<Argument>& column, uint32_t first, int count, F& f) const {
    for (int i = 0; i < count; ++i) {
      const Argument& argument = column[first + i];
      if (argument.kind == Argument::Kind::kValue) {
        f(i, argument.index);
      } else if (argument.kind == Argument::Kind::kList || argument.kind == Argument::Kind::kOptionalList) {
        for (int64_t id : trace_.lists[argument.index]) {
          if (id >= 0) f(i, static_cast<uint32_t>(id));
        }
      }
    }
  }

  const Trace& trace_;
  const Instruction& instruction_;
};

}  // namespace legoai::graph
