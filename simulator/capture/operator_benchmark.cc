#include "simulator/capture/operator_benchmark.h"

#include <map>
#include <string>
#include <utility>

#include "simulator/capture/core_processes.h"
#include "simulator/capture/eager_overhead.h"
#include "simulator/capture/step_replay.h"
#include "simulator/cost/op_facts.h"

namespace legoai::sim {
namespace {

bool IsTimed(OpClass op_class) {
  return op_class != OpClass::kView && op_class != OpClass::kControl && op_class != OpClass::kCollective;
}

// One core's part: seconds of every instruction of every stage, then the overhead of an instruction.
absl::StatusOr<std::vector<double>> MeasureCore(const std::vector<StageTrace>& stages) {
  std::vector<double> all;
  for (const StageTrace& stage : stages) {
    auto seconds = ReplayStep(*stage.trace, stage.rank);
    if (!seconds.ok()) return seconds.status();
    all.insert(all.end(), seconds->begin(), seconds->end());
  }
  auto overhead = MeasureEagerOverhead();
  if (!overhead.ok()) return overhead.status();
  all.push_back(*overhead);
  return all;
}

struct Mean {
  double sum = 0;
  int64_t count = 0;
};

// Adds one stage's operators, whose times start at `first` in each core's numbers.
absl::Status AddOperators(const graph::Trace& trace, const std::vector<std::vector<double>>& cores, size_t first,
                          std::map<std::string, Mean>* means) {
  auto rows = ResolveOperators(trace);
  if (!rows.ok()) return rows.status();
  for (size_t i = 0; i < trace.instructions.size(); ++i) {
    const graph::Instruction& instruction = trace.instructions[i];
    if (instruction.kind != graph::Instruction::Kind::kOperator || !IsTimed((*rows)[instruction.operator_index]->op_class))
      continue;
    Mean& mean = (*means)[SignatureOf(graph::InstructionView(trace, instruction))];
    for (const auto& core : cores) mean.sum += core[first + i];
    mean.count += static_cast<int64_t>(cores.size());
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Benchmark> BenchmarkOperators(const std::vector<StageTrace>& stages, int64_t busy_cores) {
  auto cores = RunOnCores(busy_cores, [&](int64_t) { return MeasureCore(stages); });
  if (!cores.ok()) return cores.status();
  std::map<std::string, Mean> means;
  size_t first = 0;
  for (const StageTrace& stage : stages) {
    absl::Status status = AddOperators(*stage.trace, *cores, first, &means);
    if (!status.ok()) return status;
    first += stage.trace->instructions.size();
  }
  Benchmark benchmark;
  for (const auto& [signature, mean] : means) benchmark.operators.Set(signature, mean.sum / static_cast<double>(mean.count));
  for (const auto& core : *cores) benchmark.dispatch_seconds += core.back() / static_cast<double>(cores->size());
  return benchmark;
}

}  // namespace legoai::sim
