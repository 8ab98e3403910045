// How long it takes to capture a training step and to simulate it, memory and time, and the memory of its Trace: models of the
// catalog, FSDP over many H100s, all by this one process. Asserts nothing about time.
//
// Usage: capture_bench [--json] [model world]...  (default: llama3-8b 8, llama3-70b 128)
#include <ATen/Parallel.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "core/hardware/catalog.h"
#include "core/model/catalog.h"
#include "core/recipe/recipe.h"
#include "core/recipe/resolved_recipe.h"
#include "proto/status.h"
#include "simulator/capture/capture.h"
#include "simulator/engine/step_simulation.h"
#include "simulator/memory/memory_simulator.h"

namespace legoai::sim {
namespace {

constexpr int kRepeats = 5;

v1::Recipe FsdpRecipe(int64_t world) {
  v1::Recipe recipe = parallel::DefaultRecipe();
  recipe.mutable_parallelism()->set_data_parallel_shard_degree(world);
  auto* training = recipe.mutable_training();
  training->set_local_batch_size(1);
  training->set_global_batch_size(world);
  training->set_seq_len(8192);
  training->set_mixed_precision_param(v1::BFLOAT16);
  return recipe;
}

absl::StatusOr<v1::Cluster> ClusterOf(int64_t world) {
  constexpr int64_t kPerNode = 8;
  ASSIGN_OR_RETURN(const auto device, FindDevice("h100-sxm-80"));
  return MakeCluster(device, std::min(world, kPerNode), std::max<int64_t>(1, world / kPerNode));
}

// Gives the seconds that it took.
absl::StatusOr<double> Simulate(const graph::Trace& trace, const v1::Cluster& cluster) {
  const absl::Time start = absl::Now();
  ASSIGN_OR_RETURN(const auto memory, SimulateMemory(trace, MemoryOptionsOf(cluster.device())));
  ASSIGN_OR_RETURN(const auto roofline, RooflineModel::Create(cluster.device()));
  const std::vector<StageTrace> stages = {{&trace, 0, 0}};
  ASSIGN_OR_RETURN(const auto step, SimulateStep(stages, cluster, *roofline, CollectiveCostModel(cluster)));
  return absl::ToDoubleSeconds(absl::Now() - start);
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

absl::Status Measure(const std::string& name, int64_t world, const char* separator, bool json) {
  auto model = model::ResolveModel(name);
  if (!model.ok()) return model.status();
  const v1::Recipe recipe = FsdpRecipe(world);
  ASSIGN_OR_RETURN(auto resolved, parallel::ResolvedRecipe::Create(recipe, *model, world));
  ASSIGN_OR_RETURN(const auto cluster, ClusterOf(world));
  std::vector<double> build, capture, simulate, both;
  int64_t operators = 0, instructions = 0, bytes = 0;
  for (int i = 0; i < kRepeats; ++i) {
    ASSIGN_OR_RETURN(auto result, CaptureStep(resolved, /*rank=*/0));
    build.push_back(result.build_seconds);
    capture.push_back(result.capture_seconds);
    ASSIGN_OR_RETURN(const auto simulated, Simulate(result.trace, cluster));
    simulate.push_back(simulated);
    both.push_back(capture.back() + simulate.back());
    operators = result.trace.OperatorCount();
    instructions = result.trace.instructions.size();
    bytes = result.trace.ResidentBytes();
  }
  const double seconds = Median(capture), per_operator = seconds / operators * 1e6;
  const double per_instruction = static_cast<double>(bytes) / instructions;
  if (json) {
    std::printf(
        "%s{\"model\": \"%s\", \"world_size\": %lld, \"build_seconds\": %.6f, \"capture_seconds\": %.6f, "
        "\"simulate_seconds\": %.6f, \"capture_and_simulate_seconds\": %.6f, \"operators\": %lld, "
        "\"microseconds_per_operator\": %.3f, \"bytes_per_instruction\": %.1f}",
        separator, name.c_str(), static_cast<long long>(world), Median(build), seconds, Median(simulate), Median(both),
        static_cast<long long>(operators), per_operator, per_instruction);
  } else {
    std::printf(
        "%-12s world %4lld  build %.3f s  capture %.3f s + simulate %.3f s = %.3f s  %lld operators, %.2f us each to capture; "
        "%.0f bytes per instruction\n",
        name.c_str(), static_cast<long long>(world), Median(build), seconds, Median(simulate), Median(both),
        static_cast<long long>(operators), per_operator, per_instruction);
  }
  return absl::OkStatus();
}

int Main(std::vector<std::string> arguments) {
  at::set_num_threads(1);
  const bool json = !arguments.empty() && arguments[0] == "--json";
  if (json) arguments.erase(arguments.begin());
  if (arguments.empty()) arguments = {"llama3-8b", "8", "llama3-70b", "128"};
  if (json) std::printf("{\"rows\": [");
  for (size_t i = 0; i + 1 < arguments.size(); i += 2) {
    const absl::Status status = Measure(arguments[i], std::atoll(arguments[i + 1].c_str()), i == 0 ? "" : ", ", json);
    if (!status.ok()) {
      std::fprintf(stderr, "%s\n", std::string(status.message()).c_str());
      return 1;
    }
  }
  if (json) std::printf("]}\n");
  return 0;
}

}  // namespace
}  // namespace legoai::sim

int main(int argc, char** argv) { return legoai::sim::Main({argv + 1, argv + argc}); }
