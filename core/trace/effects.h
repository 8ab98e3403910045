// What the operators named lego:: do to the world outside of their results, and where their arguments say it: the one place that
// knows. Recorder, checks, cost models, engine and memory simulator ask here. Pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "core/trace/operands.h"

namespace legoai::graph {

enum class Effect : uint8_t {
  kAllGather,
  kReduceScatter,
  kAllReduce,
  kAllToAll,
  kBroadcast,
  kSend,
  kRecv,
  kRecordEvent,
  kWaitEvent,
  kResizeStorage,
};

// Places of arguments; -1: there is none.
struct EffectRow {
  std::string_view name;   // "lego::all_gather_into"
  std::string_view label;  // "all_gather", as people call it
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

// Null, or what an operator with effects lacks: "no tensor", "no group of the Trace", "no peer of its group", ...
const char* MissingOperand(const Trace& trace, const Instruction& instruction);

}  // namespace legoai::graph
