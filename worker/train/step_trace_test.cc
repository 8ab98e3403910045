#include "worker/train/step_trace.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "core/trace/annotation.h"

namespace legoai::train {
namespace {

using graph::Argument;
using graph::Instruction;
using graph::Phase;
using Json = nlohmann::json;

// y = mm(x, x) in a layer, a view of it, a gather of y on a side stream, and the wait for that.
class Example {
 public:
  Example() {
    trace.geometries = {{v1::FLOAT32, 0, {4, 4}, {4, 1}}};
    trace.storages = {{64, graph::StorageKind::kExternal, graph::Category::kShardedParameter, "x", ""},
                      {64, graph::StorageKind::kInner, graph::Category::kActivation, "", ""}};
    trace.values = {{0, 0}, {1, 0}};
    trace.modules = {"", "model.layers.3.mlp"};
    trace.groups = {{mesh::Dim::kDpShard, {0, 1, 2}}};
    trace.constants = {int64_t{0}, int64_t{5}};
    Add("aten::mm", comm::kCompute, {{Argument::Kind::kValue, 0}, {Argument::Kind::kValue, 0}}, true);
    Add("aten::view", comm::kCompute, {{Argument::Kind::kValue, 1}}, true);
    Add("lego::all_gather_into", comm::kAllGather,
        {{Argument::Kind::kValue, 1}, {Argument::Kind::kValue, 0}, {Argument::Kind::kConstant, 0}}, false);
    Add("lego::wait_event", comm::kCompute, {{Argument::Kind::kConstant, 0}, {Argument::Kind::kConstant, 1}}, false);
    Instruction free;
    free.kind = Instruction::Kind::kFree;
    free.immediate = 1;
    trace.instructions.push_back(free);
    times.length_ns = 1000;
    times.phases = {{Phase::kForward, {0, 900}}, {Phase::kOptimizer, {900, 1000}}};
    times.operators = {{0, {10, 110}}, {1, {120, 130}}, {2, {140, 141}}, {3, {200, 500}}};
    times.calls = {{"all_gather", 0, comm::kAllGather, 2, {150, 490}}};
    times.waits = {{201, 499}, {950, 950}};
  }

  graph::Trace trace;
  comm::StepTimes times;

 private:
  void Add(const char* name, uint16_t stream, std::vector<Argument> arguments, bool result) {
    Instruction instruction;
    instruction.phase = Phase::kForward;
    instruction.stream = stream;
    instruction.module = 1;
    instruction.microbatch = 2;
    instruction.operator_index = static_cast<uint32_t>(trace.operators.size());
    instruction.first_argument = static_cast<uint32_t>(trace.arguments.size());
    instruction.argument_count = static_cast<uint16_t>(arguments.size());
    instruction.first_result = static_cast<uint32_t>(trace.results.size());
    instruction.result_count = result ? 1 : 0;
    trace.operators.push_back({name, 0});
    trace.arguments.insert(trace.arguments.end(), arguments.begin(), arguments.end());
    if (result) trace.results.push_back({Argument::Kind::kValue, 1});
    trace.instructions.push_back(instruction);
  }
};

// By another program than the one that wrote it.
Json Read(const std::string& path) {
  FILE* pipe = popen(("gzip -dc '" + path + "'").c_str(), "r");
  std::string text;
  char buffer[4096];
  while (size_t count = fread(buffer, 1, sizeof(buffer), pipe)) text.append(buffer, count);
  EXPECT_EQ(pclose(pipe), 0);
  return Json::parse(text);
}

TEST(StepTrace, HasOperatorsCommunicationWaitsAndModules) {
  const Example example;
  const std::string path = StepTracePath(::testing::TempDir() + "/run", 3, 1);
  EXPECT_NE(path.find("/run/traces/step-3-rank-1.json.gz"), std::string::npos);
  ASSERT_EQ(WriteStepTrace(path, {example.trace, example.times, /*stage=*/1, /*rank=*/1, {{"model", "tiny"}}}), absl::OkStatus());
  const Json file = Read(path);
  EXPECT_EQ(file["otherData"]["model"], "tiny");
  std::map<std::string, Json> slices;
  std::map<int64_t, std::string> tracks;
  for (const Json& event : file["traceEvents"]) {
    if (event["ph"] == "X") slices[event["name"]] = event;
    if (event["name"] == "thread_name") tracks[event["tid"]] = event["args"]["name"];
    if (event["name"] != "process_name") continue;
    EXPECT_EQ(event["args"]["name"], "stage 1 (rank 1)");
  }
  EXPECT_EQ(slices.count("aten::view") + slices.count("lego::wait_event"), 0u) << "they take no time of the device";
  const Json& mm = slices.at("aten::mm");
  EXPECT_EQ(mm["cat"], "compute");
  EXPECT_EQ(tracks.at(mm["tid"]), "compute");
  EXPECT_DOUBLE_EQ(mm["ts"], 0.0101);
  EXPECT_DOUBLE_EQ(mm["dur"], 0.1001);
  EXPECT_EQ(mm["args"]["module"], "model.layers.3.mlp");
  EXPECT_EQ(mm["args"]["microbatch"], 2);
  EXPECT_EQ(mm["args"]["shapes"], "float32[4,4] float32[4,4] -> float32[4,4]");
  EXPECT_EQ(mm["args"]["flops"], 2 * 4 * 4 * 4);
  EXPECT_EQ(mm["args"]["bytes"], 64 + 64) << "x, which is both operands, once, and y";
  const Json& gather = slices.at("lego::all_gather_into");
  EXPECT_EQ(tracks.at(gather["tid"]), "all_gather");
  EXPECT_DOUBLE_EQ(gather["ts"], 0.1501) << "where it ran, not where it was dispatched";
  EXPECT_EQ(gather["args"]["group"], "dp_shard");
  EXPECT_EQ(gather["args"]["ranks"], 2);
  EXPECT_EQ(gather["args"]["bytes"], 64);
  EXPECT_FALSE(gather["args"].contains("flops"));
  const Json& wait = slices.at("wait");
  EXPECT_EQ(wait["args"]["phase"], "forward");
  EXPECT_DOUBLE_EQ(wait["dur"], 0.2981);
  EXPECT_EQ(slices.at("forward of microbatch 2")["cat"], "module");
  EXPECT_EQ(slices.at("layers.3")["args"]["module"], "model.layers.3");
}

// By name, at the nanosecond.
TEST(StepTrace, CountsLiveMemoryWhereTheOperatorsRun) {
  const Example example;
  const std::string path = StepTracePath(::testing::TempDir() + "/run", 3, 1);
  ASSERT_EQ(WriteStepTrace(path, {example.trace, example.times, /*stage=*/1, /*rank=*/1}), absl::OkStatus());
  const Json file = Read(path);
  std::map<std::string, std::map<int64_t, int64_t>> counters;
  for (const Json& event : file["traceEvents"]) {
    if (event["ph"] != "C") continue;
    EXPECT_EQ(event["pid"], 2) << "of stage 1";
    counters[event["name"]][std::llround(1000 * event["ts"].get<double>() - 0.1)] = event["args"]["bytes"];
  }
  using Points = std::map<int64_t, int64_t>;
  EXPECT_EQ(counters.size(), 3u) << "of what is never there nothing is said";
  EXPECT_EQ(counters["memory"], (Points{{0, 64}, {10, 128}, {500, 64}})) << "it is freed where the compute stream is by then";
  EXPECT_EQ(counters["memory: sharded parameter"], (Points{{0, 64}}));
  EXPECT_EQ(counters["memory: activation"], (Points{{10, 64}, {500, 0}}));
}

TEST(StepTrace, WhereItCannotBeWrittenNothingIsLeft) {
  const Example example;
  const auto status = WriteStepTrace("/proc/no/traces/step-1-rank-0.json.gz", {example.trace, example.times});
  EXPECT_FALSE(status.ok());
}

}  // namespace
}  // namespace legoai::train
