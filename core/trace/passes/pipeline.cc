#include "core/trace/passes/pipeline.h"

#include <utility>

#include "core/trace/effects.h"

namespace legoai::graph {

TraceStatistics StatisticsOf(const Trace& trace) {
  TraceStatistics statistics;
  std::vector<char> made(trace.storages.size());
  for (const Instruction& instruction : trace.instructions) {
    if (instruction.kind != Instruction::Kind::kOperator) continue;
    ++statistics.operators;
    const InstructionView op(trace, instruction);
    op.ForEachResult([&](int, uint32_t value) { made[trace.values[value].storage] = true; });
    const EffectRow* const row = FindEffect(op.name());
    if (row == nullptr || !row->IsCommunication()) continue;
    ++statistics.collectives;
    const Geometry& tensor = op.GeometryOf(*op.Input(row->tensor));
    statistics.collective_bytes += Elements(tensor) * ElementBytes(tensor.dtype);
  }
  for (size_t i = 0; i < made.size(); ++i) {
    if (!made[i] || trace.storages[i].kind != StorageKind::kInner) continue;
    ++statistics.storages;
    statistics.storage_bytes += trace.storages[i].bytes;
  }
  return statistics;
}

bool HasPasses(const parallel::ResolvedRecipe&) { return false; }

absl::StatusOr<Trace> RunPasses(Trace trace, const parallel::ResolvedRecipe&, const PassOptions&, std::vector<PassReport>*) {
  return trace;
}

}  // namespace legoai::graph
