#include "simulator/measure/operator_benchmark.h"

#include <atomic>
#include <chrono>
#include <map>
#include <numeric>
#include <string>
#include <utility>

#include "core/operators/op_facts.h"
#include "proto/status.h"
#include "simulator/measure/core_processes.h"
#include "simulator/measure/eager_overhead.h"
#include "simulator/measure/replay_plan.h"
#include "simulator/measure/step_replay.h"

namespace legoai::sim {
namespace {

bool IsTimed(OpClass op_class) {
  return op_class != OpClass::kView && op_class != OpClass::kControl && op_class != OpClass::kCollective;
}

// One core's part: seconds of every instruction of every stage, then the overhead of an instruction.
absl::StatusOr<std::vector<double>> MeasureCore(const std::vector<StageTrace>& stages, const parallel::ResolvedRecipe* eager,
                                                Replays replays, std::atomic<int64_t>* done) {
  std::vector<double> all, replayed;
  for (const StageTrace& stage : stages) {
    ASSIGN_OR_RETURN(auto seconds, ReplayStep(*stage.trace, stage.rank, replays, done));
    replayed.push_back(std::accumulate(seconds.begin(), seconds.end(), 0.0));
    all.insert(all.end(), seconds.begin(), seconds.end());
  }
  ASSIGN_OR_RETURN(const double overhead, eager == nullptr ? MeasureEagerOverhead()
                                                           : MeasureEagerOverhead(*eager, stages, replayed, replays, done));
  all.push_back(overhead);
  return all;
}

// Replays on all cores, as often as time allows, telling how far they are.
absl::StatusOr<std::vector<std::vector<double>>> MeasureCores(const std::vector<StageTrace>& stages, int64_t busy_cores,
                                                              const parallel::ResolvedRecipe* eager,
                                                              const BenchmarkProgress& progress) {
  ASSIGN_OR_RETURN(const auto dtype, ProductDtype(stages));
  ASSIGN_OR_RETURN(const auto speed, MeasureCoreSpeed(dtype, busy_cores));
  PredictedStages predicted;
  double seconds = 0;
  for (const StageTrace& stage : stages) {
    ASSIGN_OR_RETURN(auto one, PredictSeconds(*stage.trace, speed));
    seconds += std::accumulate(one.begin(), one.end(), 0.0);
    predicted.push_back(std::move(one));
  }
  ASSIGN_OR_RETURN(const auto replays, PlanReplays(seconds, speed));
  if (eager != nullptr) {  // every stage runs once more in that way
    const PredictedStages again = predicted;
    predicted.insert(predicted.end(), again.begin(), again.end());
  }
  SharedCounters done(busy_cores);
  const auto begin = std::chrono::steady_clock::now();
  const std::string text = ReplayText(replays, speed);
  const auto tell = [&] {
    const double elapsed = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    if (progress) progress(ReplayProgress(text, replays, predicted, done.Smallest(), elapsed));
  };
  tell();
  return RunOnCores(
      busy_cores, [&](int64_t core) { return MeasureCore(stages, eager, replays, &done[core]); }, tell);
}

struct Mean {
  double sum = 0;
  int64_t count = 0;
};

// Adds one stage's operators, whose times start at `first` in each core's numbers.
absl::Status AddOperators(const graph::Trace& trace, const std::vector<std::vector<double>>& cores, size_t first,
                          std::map<std::string, Mean>* means) {
  ASSIGN_OR_RETURN(auto rows, ResolveOperators(trace));
  for (size_t i = 0; i < trace.instructions.size(); ++i) {
    const graph::Instruction& instruction = trace.instructions[i];
    if (instruction.kind != graph::Instruction::Kind::kOperator || !IsTimed(rows[instruction.operator_index]->op_class)) continue;
    Mean& mean = (*means)[SignatureOf(graph::InstructionView(trace, instruction))];
    for (const auto& core : cores) mean.sum += core[first + i];
    mean.count += static_cast<int64_t>(cores.size());
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Benchmark> BenchmarkOperators(const std::vector<StageTrace>& stages, int64_t busy_cores,
                                             const parallel::ResolvedRecipe* eager, const BenchmarkProgress& progress) {
  ASSIGN_OR_RETURN(auto cores, MeasureCores(stages, busy_cores, eager, progress));
  std::map<std::string, Mean> means;
  size_t first = 0;
  for (const StageTrace& stage : stages) {
    absl::Status status = AddOperators(*stage.trace, cores, first, &means);
    if (!status.ok()) return status;
    first += stage.trace->instructions.size();
  }
  Benchmark benchmark;
  for (const auto& [signature, mean] : means) benchmark.operators.Set(signature, mean.sum / static_cast<double>(mean.count));
  for (const auto& core : cores) benchmark.dispatch_seconds += core.back() / static_cast<double>(cores.size());
  return benchmark;
}

}  // namespace legoai::sim
