// How long it takes to capture a training step and to simulate it, memory and time, and what its Traces hold: models of the
// catalog on many H100s, all by this one process. Asserts nothing about time.
//
// Usage: capture_bench [--json]
#include <ATen/Parallel.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "core/hardware/catalog.h"
#include "core/model/catalog.h"
#include "core/recipe/recipe.h"
#include "core/recipe/resolved_recipe.h"
#include "proto/status.h"
#include "simulator/capture/capture_stages.h"
#include "simulator/engine/step_simulation.h"
#include "simulator/memory/memory_simulator.h"
#include "tests/bench/bench_main.h"
#include "worker/comm/cpu_tensors.h"

namespace legoai::integration {
namespace {

constexpr int kRepeats = 5;

struct Job {
  const char* model;
  int64_t world, tp = 1, pp = 1, microbatches = 1;
  int64_t layers_per_chunk = 0;  // above 0: interleaved 1F1B
};

v1::Recipe RecipeOf(const Job& job) {
  v1::Recipe recipe = parallel::DefaultRecipe();
  auto* parallelism = recipe.mutable_parallelism();
  const int64_t dp = job.world / job.tp / job.pp;
  parallelism->set_data_parallel_shard_degree(dp);
  parallelism->set_tensor_parallel_degree(job.tp);
  parallelism->set_pipeline_parallel_degree(job.pp);
  if (job.layers_per_chunk > 0) {
    parallelism->set_pipeline_parallel_schedule(v1::INTERLEAVED_1F1B);
    parallelism->set_pipeline_parallel_layers_per_stage(job.layers_per_chunk);
  }
  auto* training = recipe.mutable_training();
  training->set_local_batch_size(job.microbatches);
  training->set_global_batch_size(dp * job.microbatches);
  training->set_seq_len(8192);
  training->set_mixed_precision_param(v1::BFLOAT16);
  return recipe;
}

template <class T>
T Value(absl::StatusOr<T> result) {
  if (!result.ok()) throw std::runtime_error(result.status().ToString());
  return *std::move(result);
}

struct Seconds {
  double capture = 0, memory = 0, time = 0;
};

// One capture and simulation; `rows` gets what is the same every time.
struct Outcome {
  Seconds seconds;
  int64_t operators = 0, instructions = 0, bytes = 0, tasks = 0;
};

Outcome Run(const parallel::ResolvedRecipe& resolved, const v1::Cluster& cluster) {
  Outcome outcome;
  const absl::Time start = absl::Now();
  const auto captured = Value(sim::CaptureStages(resolved));
  const absl::Time caught = absl::Now();
  std::set<const graph::Trace*> held;
  std::vector<sim::StageTrace> stages;
  for (size_t i = 0; i < captured.size(); ++i) {
    const graph::Trace& trace = *captured[i].trace;
    const graph::Instances whole = captured[i].instances ? *captured[i].instances : graph::WholeOf(trace);
    stages.push_back(
        {&trace, static_cast<int64_t>(i), captured[i].rank, captured[i].instances ? &*captured[i].instances : nullptr});
    outcome.bytes += captured[i].instances ? whole.ResidentBytes() : 0;
    if (held.insert(&trace).second) {
      outcome.instructions += static_cast<int64_t>(trace.instructions.size());
      outcome.bytes += trace.ResidentBytes();
    }
    (void)Value(sim::SimulateMemory(trace, whole, sim::MemoryOptionsOf(cluster.device())));
  }
  const absl::Time remembered = absl::Now();
  const auto roofline = Value(sim::RooflineModel::Create(cluster.device()));
  const auto step = Value(sim::SimulateStep(stages, cluster, *roofline, sim::CollectiveCostModel(cluster)));
  outcome.operators = step.operators;
  outcome.tasks = static_cast<int64_t>(step.lowered.tasks.size());
  outcome.seconds = {absl::ToDoubleSeconds(caught - start), absl::ToDoubleSeconds(remembered - caught),
                     absl::ToDoubleSeconds(absl::Now() - remembered)};
  return outcome;
}

void Measure(const Job& job, Rows& rows) {
  const auto resolved = Value(parallel::ResolvedRecipe::Create(RecipeOf(job), Value(model::ResolveModel(job.model)), job.world));
  const v1::Cluster cluster = Value(sim::ParseCluster(
      absl::StrFormat("h100-sxm-80:%dx%d", std::min<int64_t>(job.world, 8), std::max<int64_t>(1, job.world / 8))));
  std::vector<double> capture, memory, time;
  Outcome last;
  for (int i = 0; i < kRepeats; ++i) {
    last = Run(resolved, cluster);
    capture.push_back(last.seconds.capture);
    memory.push_back(last.seconds.memory);
    time.push_back(last.seconds.time);
  }
  const double captured = Median(capture), simulated = Median(memory) + Median(time);
  rows.Add(absl::StrFormat("\"model\": \"%s\", \"world_size\": %d, \"tp\": %d, \"pp\": %d, \"microbatches\": %d, "
                           "\"layers_per_chunk\": %d, "
                           "\"capture_seconds\": %.4f, \"memory_seconds\": %.4f, \"time_seconds\": %.4f, \"operators\": %d, "
                           "\"instructions\": %d, \"bytes\": %d, \"tasks\": %d, \"tasks_per_second\": %.0f",
                           job.model, job.world, job.tp, job.pp, job.microbatches, job.layers_per_chunk, captured, Median(memory),
                           Median(time), last.operators, last.instructions, last.bytes, last.tasks,
                           static_cast<double>(last.tasks) / Median(time)),
           absl::StrFormat("%-11s %5d GPUs  TP %d PP %2d%s  %2d microbatches  capture %6.3f s + simulate %6.3f s  %8d operators, "
                           "%.2f us each to capture  %8d instructions held, %6.1f MB  %.2f M tasks/s",
                           job.model, job.world, job.tp, job.pp, job.layers_per_chunk > 0 ? " interleaved" : "", job.microbatches,
                           captured, simulated, last.operators, 1e6 * captured / static_cast<double>(last.operators),
                           last.instructions, static_cast<double>(last.bytes) / 1e6,
                           static_cast<double>(last.tasks) / Median(time) / 1e6));
}

void RunAll(Rows& rows) {
  comm::KeepFreedMemory();  // as lego-sim does
  at::set_num_threads(1);
  for (const Job& job : {Job{"llama3-8b", 8}, Job{"llama3-70b", 128}, Job{"llama3-405b", 16'384, 8, 16, 4},
                         Job{"llama3-405b", 16'384, 8, 16, 16}, Job{"llama3-405b", 16'384, 8, 16, 64},
                         Job{"llama3-405b", 16'384, 8, 16, 16, 4}, Job{"llama3-405b", 16'384, 8, 16, 64, 4}}) {
    Measure(job, rows);
  }
}

}  // namespace
}  // namespace legoai::integration

int main(int argc, char** argv) {
  using namespace legoai::integration;
  return AddRows(argv[0], argc > 1 && std::strcmp(argv[1], "--json") == 0, RunAll);
}
