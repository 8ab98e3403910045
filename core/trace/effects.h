// What an instruction of a Trace reads and writes, and the side effects of lego:: operators. Pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
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

  // The tensor at a position; null if something else is there or there is no such position.
  const Value* Input(int i) const { return At(trace_.arguments, instruction_.first_argument, instruction_.argument_count, i); }
  const Value* Result(int i) const { return At(trace_.results, instruction_.first_result, instruction_.result_count, i); }
  const Geometry& GeometryOf(const Value& value) const { return trace_.geometries[value.geometry]; }

  // The constant at a position, if it has that type.
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

// Effects of lego:: operators and the argument positions that describe them: the only such table. Recorder, checks, cost models,
// engine and memory simulator use it.

enum class Effect : uint8_t {
  kAllGather,
  kReduceScatter,
  kAllReduce,
  kAllToAll,
  kRotate,
  kBroadcast,
  kSend,
  kRecv,
  kRecordEvent,
  kWaitEvent,
  kResizeStorage,
};

// Argument positions; -1: none.
struct EffectRow {
  std::string_view name;   // "lego::all_gather_into"
  std::string_view label;  // "all_gather", for people
  Effect effect = Effect::kAllReduce;
  int tensor = -1;  // whose bytes travel (the whole of a gathered or scattered one), or whose storage is resized
  int group = -1;   // index into Trace.groups
  int peer = -1;    // of messages: index in the group
  int stream = -1, event = -1, bytes = -1;

  bool IsMessage() const { return peer >= 0; }
  bool IsCommunication() const { return group >= 0; }
  bool IsEvent() const { return event >= 0; }
};
const std::vector<EffectRow>& EffectRows();

// By schema name; null for an operator without effects.
const EffectRow* FindEffect(std::string_view name);

// lego::record_event and lego::wait_event.
struct EventUse {
  bool is_record = false;
  int64_t stream = 0, event = 0;
};
std::optional<EventUse> EventOf(const Trace& trace, const Instruction& instruction);

// lego::resize_storage_.
struct StorageResize {
  uint32_t storage = 0;
  int64_t bytes = 0;
};
std::optional<StorageResize> StorageResizeOf(const Trace& trace, const Instruction& instruction);

// Null, or what an operator with effects is missing: "no tensor", "no group of the Trace", "no peer of its group", ...
const char* MissingOperand(const Trace& trace, const Instruction& instruction);

}  // namespace legoai::graph
