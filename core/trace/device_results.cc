#include "core/trace/device_results.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "core/trace/effects.h"

namespace legoai::graph {
namespace {

constexpr char kLayerNorm[] = "aten::native_layer_norm";  // (x, ...) -> (out, mean, rstd)

bool Is16Bits(v1::DType dtype) { return dtype == v1::BFLOAT16 || dtype == v1::FLOAT16; }

// Storages of means and rstds in 16 bits.
std::vector<char> StatisticsIn16Bits(const Trace& trace) {
  std::vector<char> found(trace.storages.size());
  for (const Instruction& instruction : trace.instructions) {
    if (instruction.kind != Instruction::Kind::kOperator || trace.OperatorName(instruction) != kLayerNorm) continue;
    const InstructionView op(trace, instruction);
    for (const int place : {1, 2}) {
      const Value* const statistic = op.Result(place);
      if (statistic != nullptr && Is16Bits(op.GeometryOf(*statistic).dtype)) found[statistic->storage] = true;
    }
  }
  return found;
}

// But for a result that has views: their geometry would be another, too. The executor says that such a one is not as captured.
void MakeRollsRowMajor(Trace* trace) {
  std::vector<uint32_t> values_of(trace->storages.size());
  for (const Value& value : trace->values) ++values_of[value.storage];
  for (size_t i = 0; i < trace->instructions.size(); ++i) {
    const Instruction& instruction = trace->instructions[i];
    if (instruction.kind != Instruction::Kind::kOperator || trace->OperatorName(instruction) != "aten::roll") continue;
    const uint32_t value = trace->results[instruction.first_result].index;
    if (values_of[trace->values[value].storage] != 1) continue;
    Geometry geometry = trace->geometries[trace->values[value].geometry];
    int64_t stride = 1;
    for (size_t d = geometry.sizes.size(); d-- > 0;) {
      geometry.strides[d] = stride;
      stride *= std::max<int64_t>(geometry.sizes[d], 1);
    }
    if (geometry == trace->geometries[trace->values[value].geometry]) continue;
    trace->values[value].geometry = static_cast<uint32_t>(trace->geometries.size());
    trace->geometries.push_back(std::move(geometry));
  }
}

}  // namespace

Trace ProgramFor(v1::DeviceKind kind, Trace trace) {
  if (kind == v1::CPU) return trace;
  MakeRollsRowMajor(&trace);
  const std::vector<char> is_statistic = StatisticsIn16Bits(trace);
  std::map<uint32_t, uint32_t> geometries;  // in float32, by those in 16 bits: equal ones keep one number
  for (Value& value : trace.values) {
    if (is_statistic[value.storage] == 0) continue;
    const auto [found, added] = geometries.try_emplace(value.geometry, static_cast<uint32_t>(trace.geometries.size()));
    if (added) {
      Geometry geometry = trace.geometries[value.geometry];
      geometry.dtype = v1::FLOAT32;
      trace.geometries.push_back(std::move(geometry));
    }
    value.geometry = found->second;
  }
  for (size_t i = 0; i < is_statistic.size(); ++i) {
    if (is_statistic[i] != 0) trace.storages[i].bytes *= 2;
  }
  return trace;
}

}  // namespace legoai::graph
