// Figures of the simulator's torch-free parts: tasks per second of the engine, instructions per second of the memory simulator
// and of the lowering, bytes per second of trace files. `engine_bench [--json]`. Prints, and asserts nothing about time.
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <functional>
#include <random>
#include <string>

#include "core/hardware/catalog.h"
#include "core/trace/annotation.h"
#include "core/trace/testing/trace_builder.h"
#include "simulator/engine/chrome_trace.h"
#include "simulator/engine/step_simulation.h"
#include "simulator/memory/memory_simulator.h"

namespace legoai::sim {
namespace {

double Seconds(const std::function<void()>& run) {
  auto begin = std::chrono::steady_clock::now();
  run();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// Eight queues over two shared resources, a wait in every fourth task.
Program ManyTasks(uint32_t count) {
  Program program;
  std::mt19937 random(1);
  for (int q = 0; q < 8; ++q) program.AddQueue("queue");
  uint32_t core = program.AddResource("core", 1), link = program.AddResource("link", 1);
  for (uint32_t i = 0; i < count; ++i) {
    TaskId id = program.AddTask(i % 8, 1 + random() % 4, 0, {{i % 8 == 0 ? core : link, 0.5f}});
    if (i % 4 == 0 && id > 100) program.AddWait(id, id - 1 - random() % 100);
  }
  return program;
}

// Layers of an all-gather that the layer before hides, and operators.
graph::TraceBuilder ManyLayers(int64_t layers) {
  graph::TraceBuilder b;
  int64_t group = b.AddGroup(mesh::Dim::kDpShard, {0, 1, 8});
  auto shard = b.New(v1::BFLOAT16, {1024, 1024}, graph::StorageKind::kExternal, graph::Category::kShardedParameter);
  auto x = b.New(v1::BFLOAT16, {8192, 1024}, graph::StorageKind::kExternal);
  for (int64_t layer = 0; layer < layers; ++layer) {
    b.module = b.AddModule("model.layers." + std::to_string(layer));
    auto full = b.New(v1::BFLOAT16, {8192, 1024}, graph::StorageKind::kInner, graph::Category::kAllGatherBuffer);
    b.stream = comm::kAllGather;
    b.Op("lego::all_gather_into", {full, shard, group}, {}, 1);
    b.RecordEvent(comm::kAllGather, layer);
    b.WaitEvent(comm::kCompute, layer);
    b.stream = comm::kCompute;
    for (int op = 0; op < 40; ++op) {
      auto out = b.New(v1::BFLOAT16, {8192, 1024});
      b.Op(op % 4 == 0 ? "aten::mm" : "aten::mul.Tensor", {x, full}, {out});
      b.Free(b.StorageOf(out));
    }
    b.Free(b.StorageOf(full));
  }
  return b;
}

// Bytes of text per second of a trace file with every operator; 0 if it cannot be written.
double TraceFileSpeed(const TraceSource& source, const char* name) {
  const std::filesystem::path path = std::filesystem::temp_directory_path() / name;
  int64_t bytes = 0;
  const double seconds = Seconds([&] {
    const auto report = WriteChromeTrace("--trace", path.string(), source, {.full = true});
    if (report.ok()) bytes = report->text_bytes;
  });
  std::filesystem::remove(path);
  return static_cast<double>(bytes) / seconds;
}

int Main(bool json) {
  constexpr uint32_t kTasks = 2000000;
  Program program = ManyTasks(kTasks);
  double engine = Seconds([&] { Simulate(program).status().IgnoreError(); });
  graph::TraceBuilder builder = ManyLayers(2000);
  const double instructions = static_cast<double>(builder.trace().instructions.size());
  auto cluster = ParseCluster("h100-sxm-80:8x1");
  auto roofline = RooflineModel::Create(cluster->device());
  CollectiveCostModel collectives(*cluster);
  MemoryOptions options = MemoryOptionsOf(cluster->device());
  options.timeline = true;
  std::vector<MemoryProfile> profiles;
  double memory = Seconds([&] { profiles.push_back(*SimulateMemory(builder.trace(), options)); });
  const std::vector<StageTrace> stages = {{&builder.trace(), 0, 0}};
  absl::StatusOr<StepSimulation> simulated;
  double step = Seconds([&] { simulated = SimulateStep(stages, *cluster, **roofline, collectives); });
  if (!simulated.ok()) {
    std::fprintf(stderr, "%s\n", std::string(simulated.status().message()).c_str());
    return 1;
  }
  const TraceSource source{stages, *simulated, profiles, *cluster};
  struct Row {
    const char* name;
    double per_second;
  };
  const Row rows[] = {{"engine, tasks", kTasks / engine},
                      {"memory simulator, instructions", instructions / memory},
                      {"step simulation, instructions", instructions / step},
                      {"trace file, bytes", TraceFileSpeed(source, "engine_bench.json")},
                      {"trace file with gzip, bytes", TraceFileSpeed(source, "engine_bench.json.gz")}};
  if (json) std::printf("{\"rows\": [");
  for (const Row& row : rows) {
    if (json) {
      std::printf("%s{\"name\": \"%s\", \"per_second\": %.0f}", &row == rows ? "" : ", ", row.name, row.per_second);
    } else {
      std::printf("%-32s %8.2f million per second\n", row.name, row.per_second / 1e6);
    }
  }
  if (json) std::printf("]}\n");
  return 0;
}

}  // namespace
}  // namespace legoai::sim

int main(int argc, char** argv) { return legoai::sim::Main(argc > 1 && std::strcmp(argv[1], "--json") == 0); }
