// Builds small Traces by hand, for tests of what reads them.
#pragma once

#include <initializer_list>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include "core/trace/trace.h"

namespace legoai::graph {

class TraceBuilder {
 public:
  struct Tensor {
    uint32_t value;
  };
  struct List {
    std::vector<Tensor> tensors;
  };
  using Arg = std::variant<Tensor, List, int64_t, double, bool, std::vector<int64_t>, std::vector<bool>, std::string,
                           std::monostate>;

  uint32_t AddStorage(int64_t bytes, StorageKind kind = StorageKind::kInner, Category category = Category::kActivation,
                      std::string name = "") {
    trace_.storages.push_back({bytes, kind, category, std::move(name), ""});
    return static_cast<uint32_t>(trace_.storages.size() - 1);
  }
  Tensor View(uint32_t storage, v1::DType dtype, std::vector<int64_t> sizes, std::vector<int64_t> strides, int64_t offset = 0) {
    auto [found, added] = geometries_.try_emplace({dtype, offset, sizes, strides}, trace_.geometries.size());
    if (added) trace_.geometries.push_back({dtype, offset, std::move(sizes), std::move(strides)});
    trace_.values.push_back({storage, found->second});
    return {static_cast<uint32_t>(trace_.values.size() - 1)};
  }
  // A contiguous tensor on a storage of its own.
  Tensor New(v1::DType dtype, std::vector<int64_t> sizes, StorageKind kind = StorageKind::kInner,
             Category category = Category::kActivation) {
    std::vector<int64_t> strides(sizes.size(), 1);
    for (size_t i = sizes.size(); i-- > 1;) strides[i - 1] = strides[i] * sizes[i];
    int64_t elements = 1;
    for (int64_t size : sizes) elements *= size;
    return View(AddStorage(elements * ElementBytes(dtype), kind, category), dtype, std::move(sizes), std::move(strides));
  }
  // A float tensor that is bound at execution.
  Tensor Input(const std::string& name, std::vector<int64_t> sizes) {
    const Tensor tensor = New(v1::FLOAT32, std::move(sizes), StorageKind::kExternal);
    trace_.inputs[name] = tensor.value;
    return tensor;
  }
  uint32_t StorageOf(Tensor tensor) const { return trace_.values[tensor.value].storage; }

  // `writes`: bit i: argument i is written in place. Gives the instruction, to set stream, phase, module ...
  Instruction& Op(const std::string& name, std::vector<Arg> arguments, std::vector<Tensor> results, uint64_t writes = 0) {
    Instruction instruction;
    auto [found, added] = operators_.try_emplace({name, writes}, trace_.operators.size());
    if (added) trace_.operators.push_back({name, writes});
    instruction.operator_index = found->second;
    instruction.first_argument = static_cast<uint32_t>(trace_.arguments.size());
    instruction.argument_count = static_cast<uint16_t>(arguments.size());
    for (auto& argument : arguments) trace_.arguments.push_back(Convert(argument));
    instruction.first_result = static_cast<uint32_t>(trace_.results.size());
    instruction.result_count = static_cast<uint16_t>(results.size());
    for (Tensor result : results) trace_.results.push_back({Argument::Kind::kValue, result.value});
    instruction.stream = stream;
    instruction.phase = phase;
    instruction.module = module;
    trace_.instructions.push_back(instruction);
    return trace_.instructions.back();
  }
  Instruction& Free(uint32_t storage) {
    Instruction instruction;
    instruction.kind = Instruction::Kind::kFree;
    instruction.immediate = storage;
    trace_.instructions.push_back(instruction);
    return trace_.instructions.back();
  }
  void Resize(uint32_t storage, int64_t bytes) {
    Instruction instruction;
    instruction.kind = Instruction::Kind::kResize;
    instruction.operator_index = storage;
    instruction.immediate = bytes;
    trace_.instructions.push_back(instruction);
  }
  uint32_t AddModule(std::string path) {
    trace_.modules.push_back(std::move(path));
    return static_cast<uint32_t>(trace_.modules.size() - 1);
  }
  int64_t AddGroup(mesh::Dim dim, const mesh::RankLine& ranks) {
    trace_.groups.push_back({dim, ranks});
    return static_cast<int64_t>(trace_.groups.size() - 1);
  }
  void RecordEvent(int64_t on_stream, int64_t event) { Op("lego::record_event", {on_stream, event}, {}); }
  void WaitEvent(int64_t on_stream, int64_t event) { Op("lego::wait_event", {on_stream, event}, {}); }

  const Trace& trace() const { return trace_; }

  // Of the instructions added next.
  uint16_t stream = 0;
  Phase phase = Phase::kForward;
  uint32_t module = 0;

 private:
  Argument Convert(const Arg& argument) {
    if (const auto* tensor = std::get_if<Tensor>(&argument)) return {Argument::Kind::kValue, tensor->value};
    if (const auto* list = std::get_if<List>(&argument)) {
      trace_.lists.emplace_back();
      for (Tensor tensor : list->tensors) trace_.lists.back().push_back(tensor.value);
      return {Argument::Kind::kList, static_cast<uint32_t>(trace_.lists.size() - 1)};
    }
    if (const auto* integer = std::get_if<int64_t>(&argument)) trace_.constants.emplace_back(*integer);
    if (const auto* real = std::get_if<double>(&argument)) trace_.constants.emplace_back(*real);
    if (const auto* integers = std::get_if<std::vector<int64_t>>(&argument)) trace_.constants.emplace_back(*integers);
    if (const auto* booleans = std::get_if<std::vector<bool>>(&argument)) trace_.constants.emplace_back(*booleans);
    if (const auto* boolean = std::get_if<bool>(&argument)) trace_.constants.emplace_back(*boolean);
    if (const auto* text = std::get_if<std::string>(&argument)) trace_.constants.emplace_back(*text);
    if (std::get_if<std::monostate>(&argument) != nullptr) trace_.constants.emplace_back(std::monostate());
    return {Argument::Kind::kConstant, static_cast<uint32_t>(trace_.constants.size() - 1)};
  }

  Trace trace_;
  // Interned, as a recorder does.
  std::map<std::pair<std::string, uint64_t>, uint32_t> operators_;
  std::map<std::tuple<v1::DType, int64_t, std::vector<int64_t>, std::vector<int64_t>>, uint32_t> geometries_;
};

}  // namespace legoai::graph
