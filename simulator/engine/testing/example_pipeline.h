// A pipeline of hand-made stages with its simulation, for tests of what is written about a step.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "core/hardware/catalog.h"
#include "core/trace/annotation.h"
#include "core/trace/testing/trace_builder.h"
#include "simulator/cost/collective_cost.h"
#include "simulator/cost/compute_cost.h"
#include "simulator/engine/chrome_trace.h"
#include "simulator/engine/step_simulation.h"
#include "simulator/memory/memory_simulator.h"

namespace legoai::sim::testing {

// One stage of a pipeline with sharded data: modules, recomputation, collectives beside the operators, an optimizer.
inline graph::TraceBuilder ExampleStage(int64_t stage, int64_t stages, int64_t microbatches, int64_t width) {
  graph::TraceBuilder b;
  const int64_t pp = b.AddGroup(mesh::Dim::kPp, {0, 2, stages}), dp = b.AddGroup(mesh::Dim::kDpShard, {2 * stage, 1, 2});
  auto x = b.New(v1::BFLOAT16, {width, 512}, graph::StorageKind::kExternal);
  auto shard = b.New(v1::BFLOAT16, {256, 512}, graph::StorageKind::kExternal, graph::Category::kShardedParameter);
  auto weight = b.New(v1::BFLOAT16, {512, 512}, graph::StorageKind::kExternal, graph::Category::kUnshardedParameter);
  std::vector<uint32_t> modules = {b.AddModule("model.layers.0.mlp"), b.AddModule("model.layers.0.norm"),
                                   b.AddModule("model.layers.1.mlp")};
  int64_t event = 0;
  auto add = [&](const std::string& name, std::vector<graph::TraceBuilder::Arg> arguments,
                 std::vector<graph::TraceBuilder::Tensor> results, int32_t microbatch, graph::Phase phase, uint32_t module = 0,
                 uint64_t writes = 0) {
    graph::Instruction& op = b.Op(name, std::move(arguments), std::move(results), writes);
    op.microbatch = microbatch;
    op.phase = phase;
    op.module = module;
  };
  auto receive = [&](uint16_t stream, int64_t peer, int32_t m, graph::Phase phase) {
    b.stream = stream;
    add("lego::recv", {x, pp, peer}, {}, m, phase, 0, 1);
    b.RecordEvent(stream, event);
    b.stream = comm::kCompute;
    b.WaitEvent(comm::kCompute, event++);
  };
  auto send = [&](uint16_t stream, int64_t peer, int32_t m, graph::Phase phase) {
    b.RecordEvent(comm::kCompute, event);
    b.WaitEvent(stream, event++);
    b.stream = stream;
    add("lego::send", {x, pp, peer}, {}, m, phase);
    b.stream = comm::kCompute;
  };
  auto operators = [&](int32_t m, graph::Phase phase) {
    for (uint32_t module : modules) {
      auto y = b.New(v1::BFLOAT16, {width, 512});
      add("aten::mm", {x, weight}, {y}, m, phase, module);
      add("aten::add_.Tensor", {y, x, int64_t{1}}, {}, m, phase, module, 1);
      b.Free(b.StorageOf(y));
    }
  };
  for (int32_t m = 0; m < microbatches; ++m) {
    if (stage > 0) receive(comm::kRecvPrevious, stage - 1, m, graph::Phase::kForward);
    b.stream = comm::kAllGather;
    add("lego::all_gather_into", {weight, shard, dp}, {}, m, graph::Phase::kForward, modules[0], 1);
    b.RecordEvent(comm::kAllGather, event);
    b.stream = comm::kCompute;
    b.WaitEvent(comm::kCompute, event++);
    operators(m, graph::Phase::kForward);
    if (stage + 1 < stages) send(comm::kSendNext, stage + 1, m, graph::Phase::kForward);
  }
  for (int32_t m = 0; m < microbatches; ++m) {
    if (stage + 1 < stages) receive(comm::kRecvNext, stage + 1, m, graph::Phase::kBackward);
    operators(m, graph::Phase::kRecompute);
    operators(m, graph::Phase::kBackward);
    b.RecordEvent(comm::kCompute, event);
    b.WaitEvent(comm::kReduceScatter, event++);
    b.stream = comm::kReduceScatter;
    add("lego::reduce_scatter_into", {shard, weight, dp}, {}, m, graph::Phase::kBackward, modules[0], 1);
    b.stream = comm::kCompute;
    if (stage > 0) send(comm::kSendPrevious, stage - 1, m, graph::Phase::kBackward);
  }
  add("aten::add_.Tensor", {shard, shard, int64_t{1}}, {}, -1, graph::Phase::kOptimizer, 0, 1);
  return b;
}

// A pipeline with its simulation.
struct Example {
  std::vector<graph::TraceBuilder> builders;
  std::vector<StageTrace> stages;
  v1::Cluster cluster;
  StepSimulation simulation;
  std::vector<MemoryProfile> memory;

  Example(int64_t count, int64_t microbatches, int64_t width = 4096) {
    for (int64_t s = 0; s < count; ++s) builders.push_back(ExampleStage(s, count, microbatches, width));
    cluster = *ParseCluster("h100-sxm-80:" + std::to_string(2 * count) + "x1");
    for (int64_t s = 0; s < count; ++s) stages.push_back({&builders[s].trace(), s, 2 * s});
    auto roofline = RooflineModel::Create(cluster.device());
    auto result = SimulateStep(stages, cluster, **roofline, CollectiveCostModel(cluster));
    EXPECT_TRUE(result.ok()) << result.status();
    simulation = *std::move(result);
    MemoryOptions options = MemoryOptionsOf(cluster.device());
    options.timeline = true;
    for (const StageTrace& stage : stages) memory.push_back(*SimulateMemory(*stage.trace, options));
  }

  TraceSource Source() const { return {stages, simulation, memory, cluster, {{"model", "a \"quoted\" name"}}}; }
  int64_t Tasks() const {
    return std::count_if(simulation.lowered.tasks.begin(), simulation.lowered.tasks.end(),
                         [](const TaskInfo& info) { return info.kind != TaskKind::kMarker; });
  }
};

}  // namespace legoai::sim::testing
