#include "core/trace/passes/rewriter.h"

#include <algorithm>
#include <utility>

#include "core/trace/effects.h"

namespace legoai::graph {
namespace {

// Frees that come too early, behind the last use of what they free.
std::vector<Instruction> WithLateFrees(const Trace& trace) {
  std::vector<int64_t> last(trace.storages.size(), -1);
  for (size_t i = 0; i < trace.instructions.size(); ++i) {
    for (uint32_t storage : StoragesOf(trace, trace.instructions[i])) last[storage] = static_cast<int64_t>(i);
  }
  std::vector<std::vector<Instruction>> late(trace.instructions.size());
  std::vector<Instruction> list;
  list.reserve(trace.instructions.size());
  for (size_t i = 0; i < trace.instructions.size(); ++i) {
    const Instruction& instruction = trace.instructions[i];
    const bool is_free = instruction.kind == Instruction::Kind::kFree;
    if (is_free && last[instruction.immediate] > static_cast<int64_t>(i)) {
      late[last[instruction.immediate]].push_back(instruction);
      continue;
    }
    list.push_back(instruction);
    for (Instruction& free : late[i]) {
      free.phase = instruction.phase, free.action = instruction.action, free.microbatch = instruction.microbatch;
      list.push_back(free);
    }
  }
  return list;
}

}  // namespace

Rewriter::Rewriter(Trace trace)
    : trace_(std::move(trace)), removed_(trace_.instructions.size()), inserted_(trace_.instructions.size() + 1) {}

Instruction Rewriter::Again(const Instruction& like, const std::vector<Change>& changes) {
  Instruction made = like;
  made.first_argument = static_cast<uint32_t>(trace_.arguments.size());
  made.first_result = static_cast<uint32_t>(trace_.results.size());
  const auto append = [](std::vector<Argument>* column, uint32_t first, uint32_t count) {
    for (uint32_t i = 0; i < count; ++i) column->push_back(Argument((*column)[first + i]));
  };
  append(&trace_.arguments, like.first_argument, like.argument_count);
  append(&trace_.results, like.first_result, like.result_count);
  for (const Change& change : changes) {
    if (change.argument >= 0) trace_.arguments[made.first_argument + change.argument] = change.to;
    if (change.result >= 0) trace_.results[made.first_result + change.result] = change.to;
  }
  return made;
}

Instruction Rewriter::Make(const Instruction& like, const std::string& name, uint64_t writes,
                           const std::vector<Argument>& arguments, const std::vector<uint32_t>& results, int64_t stream) {
  const auto is_it = [&](const Operator& op) { return op.name == name && op.writes == writes; };
  const auto found = std::find_if(trace_.operators.begin(), trace_.operators.end(), is_it);
  Instruction made = like;
  made.kind = Instruction::Kind::kOperator;
  made.operator_index = static_cast<uint32_t>(found - trace_.operators.begin());
  if (found == trace_.operators.end()) trace_.operators.push_back({name, writes});
  made.stream = static_cast<uint16_t>(stream);
  made.first_argument = static_cast<uint32_t>(trace_.arguments.size());
  made.argument_count = static_cast<uint16_t>(arguments.size());
  trace_.arguments.insert(trace_.arguments.end(), arguments.begin(), arguments.end());
  made.first_result = static_cast<uint32_t>(trace_.results.size());
  made.result_count = static_cast<uint16_t>(results.size());
  for (uint32_t result : results) trace_.results.push_back({Argument::Kind::kValue, result});
  return made;
}

uint32_t Rewriter::AddConstant(Constant constant) {
  trace_.constants.push_back(std::move(constant));
  return static_cast<uint32_t>(trace_.constants.size() - 1);
}

uint32_t Rewriter::AddValue(uint32_t storage, Geometry geometry) {
  trace_.geometries.push_back(std::move(geometry));
  trace_.values.push_back({storage, static_cast<uint32_t>(trace_.geometries.size() - 1)});
  return static_cast<uint32_t>(trace_.values.size() - 1);
}

uint32_t Rewriter::AddModule(const std::string& path) {
  const auto found = std::find(trace_.modules.begin(), trace_.modules.end(), path);
  if (found != trace_.modules.end()) return static_cast<uint32_t>(found - trace_.modules.begin());
  trace_.modules.push_back(path);
  return static_cast<uint32_t>(trace_.modules.size() - 1);
}

Trace Rewriter::Finish() {
  std::vector<Instruction> list;
  list.reserve(trace_.instructions.size());
  for (size_t i = 0; i <= trace_.instructions.size(); ++i) {
    list.insert(list.end(), inserted_[i].begin(), inserted_[i].end());
    if (i < trace_.instructions.size() && !removed_[i]) list.push_back(trace_.instructions[i]);
  }
  trace_.instructions = std::move(list);
  trace_.instructions = WithLateFrees(trace_);
  return std::move(trace_);
}

bool IsViewOf(const Trace& trace, const Instruction& instruction) {
  if (instruction.kind != Instruction::Kind::kOperator) return false;
  const Operands operands = OperandsOf(trace, instruction);
  if (operands.results.empty() || !operands.writes.empty() || operands.has_host_result) return false;
  return std::all_of(operands.results.begin(), operands.results.end(), [&](uint32_t result) {
    return std::any_of(operands.reads.begin(), operands.reads.end(),
                       [&](uint32_t read) { return trace.values[read].storage == trace.values[result].storage; });
  });
}

std::vector<uint32_t> StoragesOf(const Trace& trace, const Instruction& instruction) {
  std::vector<uint32_t> storages;
  if (instruction.kind != Instruction::Kind::kOperator) return storages;
  const auto add = [&](int, uint32_t value) {
    const uint32_t storage = trace.values[value].storage;
    if (std::find(storages.begin(), storages.end(), storage) == storages.end()) storages.push_back(storage);
  };
  const InstructionView op(trace, instruction);
  op.ForEachInput(add);
  op.ForEachResult(add);
  return storages;
}

}  // namespace legoai::graph
