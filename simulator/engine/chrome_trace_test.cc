#include "simulator/engine/chrome_trace.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "proto/errors.h"
#include "simulator/hardware/catalog.h"
#include "worker/comm/stream_ids.h"
#include "worker/graph/trace_builder.h"

namespace legoai::sim {
namespace {

using nlohmann::json;

struct Example {
  graph::TraceBuilder builder;
  std::vector<StageTrace> stages;
  StepSimulation simulation;
  std::vector<MemoryProfile> memory;

  Example() {
    int64_t group = builder.AddGroup("dp_shard", {0, 1});
    auto shard = builder.New(v1::BFLOAT16, {512, 1024}, graph::StorageKind::kExternal, graph::Category::kShardedParameter);
    auto full = builder.New(v1::BFLOAT16, {1024, 1024}, graph::StorageKind::kInner, graph::Category::kUnshardedParameter);
    builder.stream = comm::kAllGather;
    builder.Op("lego::all_gather_into", {full, shard, group}, {}, 1);
    builder.RecordEvent(comm::kAllGather, 0);
    builder.WaitEvent(comm::kCompute, 0);
    builder.stream = comm::kCompute;
    builder.module = builder.AddModule("model.layers.0 \"quoted\"");
    auto out = builder.New(v1::BFLOAT16, {1024, 1024});
    builder.Op("aten::mm", {full, full}, {out}).microbatch = 3;
    builder.Free(builder.StorageOf(full));
    stages = {{&builder.trace(), 0, 0}};
    auto cluster = ParseCluster("h100-sxm-80:2x1");
    auto roofline = RooflineModel::Create(cluster->device());
    auto result = SimulateStep(stages, *cluster, **roofline, CollectiveCostModel(*cluster));
    EXPECT_TRUE(result.ok()) << result.status();
    simulation = *std::move(result);
    MemoryOptions options = MemoryOptionsOf(cluster->device());
    options.timeline = true;
    memory.push_back(*SimulateMemory(builder.trace(), options));
  }
};

TEST(ChromeTraceTest, EventsHaveTheFieldsThatViewersNeed) {
  Example example;
  json trace = json::parse(ChromeTrace(example.stages, example.simulation, example.memory));
  std::set<std::string> threads;
  double end = 0, memory_at_end = -1;
  int tasks = 0;
  for (const auto& event : trace.at("traceEvents")) {
    std::string kind = event.at("ph");
    EXPECT_EQ(event.at("pid"), 0);
    if (kind == "M" && event.at("name") == "thread_name") threads.insert(event.at("args").at("name"));
    if (kind == "X") {
      ++tasks;
      EXPECT_GE(event.at("ts").get<double>(), 0);
      EXPECT_GT(event.at("dur").get<double>(), 0);
      end = std::max(end, event.at("ts").get<double>() + event.at("dur").get<double>());
      if (event.at("name") == "aten::mm") {
        EXPECT_EQ(event.at("tid"), comm::kCompute);
        EXPECT_EQ(event.at("args").at("module"), "model.layers.0 \"quoted\"");
        EXPECT_EQ(event.at("args").at("phase"), "forward");
        EXPECT_EQ(event.at("args").at("microbatch"), 3);
        EXPECT_EQ(event.at("cat"), "compute");
      } else {
        EXPECT_EQ(event.at("name"), "lego::all_gather_into");
        EXPECT_EQ(event.at("tid"), comm::kAllGather);
      }
    }
    if (kind == "C") {
      memory_at_end = 0;
      for (const auto& [name, bytes] : event.at("args").items()) memory_at_end += bytes.get<double>();
    }
  }
  EXPECT_EQ(tasks, 2);
  EXPECT_NEAR(end, example.simulation.step_seconds * 1e6, 0.01);
  EXPECT_TRUE(threads.count("compute") && threads.count("all_gather"));
  EXPECT_EQ(memory_at_end, example.memory[0].live_bytes.back());
}

TEST(ChromeTraceTest, MemoryTimelineHasOnlyCounters) {
  Example example;
  json trace = json::parse(MemoryTimeline(example.stages, example.simulation, example.memory));
  size_t counters = 0;
  for (const auto& event : trace.at("traceEvents")) {
    EXPECT_TRUE(event.at("ph") == "C" || event.at("name") == "process_name");
    counters += event.at("ph") == "C";
  }
  EXPECT_EQ(counters, example.memory[0].timeline.size());
}

TEST(ChromeTraceTest, FilesAreWrittenOrRefusedByName) {
  std::string path = testing::TempDir() + "/trace.json";
  ASSERT_TRUE(WriteTextFile("--trace", path, "{}").ok());
  std::string text;
  std::getline(std::ifstream(path), text);
  EXPECT_EQ(text, "{}");
  absl::Status status = WriteTextFile("--trace", testing::TempDir() + "/no/such/folder/t.json", "{}");
  EXPECT_EQ(GetFieldViolation(status)->field(), "--trace");
}

}  // namespace
}  // namespace legoai::sim
