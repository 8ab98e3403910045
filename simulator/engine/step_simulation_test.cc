#include "simulator/engine/step_simulation.h"

#include <gtest/gtest.h>

#include <random>

#include "core/trace/annotation.h"
#include "core/trace/testing/trace_builder.h"
#include "proto/testing/seeded_random.h"
#include "simulator/engine/testing/example_pipeline.h"

namespace legoai::sim {
namespace {

using graph::Phase;
using graph::TraceBuilder;

// Seconds by operator name.
class TableModel : public ComputeCostModel {
 public:
  explicit TableModel(std::map<std::string, double> seconds) : seconds_(std::move(seconds)) {}
  absl::StatusOr<Cost> Time(const graph::Trace& trace, const graph::Instruction& instruction) const override {
    return Cost{seconds_.at(trace.OperatorName(instruction)), "table"};
  }

 private:
  std::map<std::string, double> seconds_;
};

// One byte per second over the link, nothing else takes time.
v1::Cluster TestCluster(v1::DeviceKind kind, int64_t ranks, double bandwidth = 1) {
  v1::Cluster cluster;
  cluster.set_devices_per_node(ranks);
  cluster.set_nodes(1);
  cluster.set_host_cores(ranks);
  cluster.mutable_device()->set_kind(kind);
  cluster.mutable_device()->set_memory_bandwidth_bytes_per_second(1e18);
  cluster.mutable_device()->set_communication_compute_share(kind == v1::CPU ? 1 : 0);
  auto* tier = cluster.add_tiers();
  tier->set_name("node");
  tier->set_group_size(ranks);
  tier->mutable_link()->set_bandwidth_bytes_per_second(bandwidth);
  tier->mutable_link()->set_efficiency(1);
  return cluster;
}

StepSimulation RunStep(const std::vector<const TraceBuilder*>& stages, const v1::Cluster& cluster, const TableModel& model) {
  std::vector<StageTrace> traces;
  for (size_t i = 0; i < stages.size(); ++i) {
    traces.push_back({&stages[i]->trace(), static_cast<int64_t>(i), static_cast<int64_t>(i)});
  }
  auto result = SimulateStep(traces, cluster, model, CollectiveCostModel(cluster));
  EXPECT_TRUE(result.ok()) << result.status();
  if (!result.ok()) return StepSimulation();
  for (const auto& stage : result->stages) {
    EXPECT_NEAR(stage.compute_seconds() + stage.exposed_communication_seconds() + stage.bubble_seconds() +
                    stage.launch_seconds() + stage.optimizer_seconds(),
                result->step_seconds, 1e-6 * (1 + result->step_seconds));
  }
  return *std::move(result);
}

// A pipeline stage that plays a list of actions: +m forward of microbatch m - 1, -m backward.
TraceBuilder Stage(int64_t stage, int64_t stages, const std::vector<int>& actions) {
  TraceBuilder b;
  int64_t group = b.AddGroup(mesh::Dim::kPp, {0, 1, stages}), event = 0;
  auto message = b.New(v1::FLOAT32, {1}, graph::StorageKind::kExternal);
  auto receive = [&](uint16_t stream, int64_t peer) {
    b.stream = stream;
    b.Op("lego::recv", {message, group, peer}, {}, 1);
    b.RecordEvent(stream, event);
    b.WaitEvent(comm::kCompute, event++);
  };
  auto send = [&](uint16_t stream, int64_t peer) {
    b.RecordEvent(comm::kCompute, event);
    b.WaitEvent(stream, event++);
    b.stream = stream;
    b.Op("lego::send", {message, group, peer}, {});
  };
  for (int action : actions) {
    bool forward = action > 0;
    b.phase = forward ? Phase::kForward : Phase::kBackward;
    if (forward && stage > 0) receive(comm::kRecvPrevious, stage - 1);
    if (!forward && stage + 1 < stages) receive(comm::kRecvNext, stage + 1);
    b.stream = comm::kCompute;
    b.Op(forward ? "aten::mm" : "aten::bmm", {message, message}, {message});
    if (forward && stage + 1 < stages) send(comm::kSendNext, stage + 1);
    if (!forward && stage > 0) send(comm::kSendPrevious, stage - 1);
  }
  return b;
}

std::vector<int> GPipe(int microbatches) {
  std::vector<int> actions;
  for (int m = 1; m <= microbatches; ++m) actions.push_back(m);
  for (int m = 1; m <= microbatches; ++m) actions.push_back(-m);
  return actions;
}

std::vector<int> OneForwardOneBackward(int stage, int stages, int microbatches) {
  std::vector<int> actions;
  int warmup = std::min(microbatches, stages - 1 - stage), forward = 1, backward = 1;
  while (forward <= warmup) actions.push_back(forward++);
  while (forward <= microbatches) actions.push_back(forward++), actions.push_back(-backward++);
  while (backward <= microbatches) actions.push_back(-backward++);
  return actions;
}

TEST(StepSimulationTest, PipelineBubblesEqualTheClosedForm) {
  TableModel model({{"aten::mm", 1.0}, {"aten::bmm", 2.0}});
  for (bool gpipe : {true, false}) {
    for (int stages : {1, 2, 4, 8}) {
      for (int microbatches : {1, 4, 8, 16}) {
        SCOPED_TRACE(::testing::Message() << (gpipe ? "GPipe " : "1F1B ") << stages << " " << microbatches);
        std::vector<TraceBuilder> builders;
        for (int s = 0; s < stages; ++s) {
          builders.push_back(Stage(s, stages, gpipe ? GPipe(microbatches) : OneForwardOneBackward(s, stages, microbatches)));
        }
        std::vector<const TraceBuilder*> pointers;
        for (const auto& builder : builders) pointers.push_back(&builder);
        StepSimulation result = RunStep(pointers, TestCluster(v1::CUDA, stages, 1e18), model);
        double p = stages, m = microbatches;
        EXPECT_NEAR(result.step_seconds, 3 * (m + p - 1), 1e-9);
        EXPECT_NEAR(result.breakdown.bubble_seconds() / result.step_seconds, (p - 1) / (m + p - 1), 1e-9);
        for (const auto& stage : result.stages) EXPECT_NEAR(stage.compute_seconds(), 3 * m, 1e-9);
      }
    }
  }
}

// NCCL's kernels compute beside a product; copies through symmetric memory do not.
TEST(StepSimulationTest, RotationsThroughMemoryLeaveProductsTheDevice) {
  const auto seconds_beside = [](mesh::Dim dim) {
    TraceBuilder b;
    const int64_t group = b.AddGroup(dim, {0, 1, 2});
    const auto in = b.New(v1::FLOAT32, {1}, graph::StorageKind::kExternal);
    const auto out = b.New(v1::FLOAT32, {1}, graph::StorageKind::kExternal);
    const auto x = b.New(v1::FLOAT32, {1}, graph::StorageKind::kExternal);
    b.stream = comm::kRotate;
    b.Op("lego::rotate_into", {out, in, group}, {}, 1);
    b.stream = comm::kCompute;
    b.Op("aten::mm", {x, x}, {x});
    v1::Cluster cluster = TestCluster(v1::CUDA, 2, /*bandwidth=*/1);  // the message takes 4 s
    cluster.mutable_device()->set_communication_compute_share(0.5);
    cluster.mutable_tiers(0)->mutable_link()->set_type("nvlink4");
    return RunStep({&b}, cluster, TableModel({{"aten::mm", 1.0}})).breakdown.compute_seconds();
  };
  EXPECT_NEAR(seconds_beside(mesh::Dim::kTp), 1, 1e-9);
  EXPECT_GT(seconds_beside(mesh::Dim::kCp), 1.2);
}

TEST(StepSimulationTest, DeadlockNamesStagesStreamsAndOperators) {
  TraceBuilder a, b;
  for (TraceBuilder* builder : {&a, &b}) {
    int64_t group = builder->AddGroup(mesh::Dim::kPp, {0, 1, 2}), peer = builder == &a ? 1 : 0;
    auto x = builder->New(v1::FLOAT32, {1}, graph::StorageKind::kExternal);
    // Both receive before they send what the other waits for.
    builder->stream = comm::kRecvNext;
    if (builder == &b) builder->stream = comm::kRecvPrevious;
    uint16_t in = builder->stream, out = builder == &a ? comm::kSendNext : comm::kSendPrevious;
    builder->Op("lego::recv", {x, group, peer}, {}, 1);
    builder->RecordEvent(in, 1);
    builder->WaitEvent(out, 1);
    builder->stream = out;
    builder->Op("lego::send", {x, group, peer}, {});
  }
  v1::Cluster cluster = TestCluster(v1::CUDA, 2);
  auto result = SimulateStep({{&a.trace(), 0, 0}, {&b.trace(), 1, 1}}, cluster, TableModel({}), CollectiveCostModel(cluster));
  EXPECT_EQ(result.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(result.status().message().find("stage 0, recv_next: lego::recv"), std::string::npos) << result.status();
  EXPECT_NE(result.status().message().find("stage 1, send_previous: lego::send"), std::string::npos) << result.status();
}

TEST(StepSimulationTest, MessagesWithoutAnEndAreRefused) {
  TraceBuilder a = Stage(0, 2, {1});
  v1::Cluster cluster = TestCluster(v1::CUDA, 2);
  auto result = SimulateStep({{&a.trace(), 0, 0}}, cluster, TableModel({{"aten::mm", 1}}), CollectiveCostModel(cluster));
  EXPECT_EQ(result.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(result.status().message().find("rank 0 sends 1 messages to rank 1"), std::string::npos) << result.status();
}

// mm beside an all-gather that the next mm waits for; then a blocking all-reduce and the optimizer.
TraceBuilder Overlapped(int64_t gathered_bytes) {
  TraceBuilder b;
  int64_t group = b.AddGroup(mesh::Dim::kDpShard, {0, 1, 2});
  auto full = b.New(v1::UINT8, {gathered_bytes}, graph::StorageKind::kExternal);
  auto shard = b.New(v1::UINT8, {gathered_bytes / 2}, graph::StorageKind::kExternal);
  auto norm = b.New(v1::UINT8, {4}, graph::StorageKind::kExternal);
  b.stream = comm::kAllGather;
  b.Op("lego::all_gather_into", {full, shard, group}, {}, 1);
  b.RecordEvent(comm::kAllGather, 5);
  b.stream = comm::kCompute;
  b.module = b.AddModule("layers.0");
  b.Op("aten::mm", {norm, norm}, {norm});
  b.WaitEvent(comm::kCompute, 5);
  b.module = b.AddModule("layers.1");
  b.Op("aten::mm", {norm, norm}, {norm});
  b.phase = Phase::kOptimizer;
  b.Op("lego::all_reduce_", {norm, group, int64_t{0}}, {}, 1);
  b.Op("aten::_fused_adamw_.tensor_lr", {norm}, {}, 1);
  return b;
}

TEST(StepSimulationTest, OnlyCommunicationThatIsWaitedForIsExposed) {
  TraceBuilder b = Overlapped(20);  // 10 seconds at one byte a second
  TableModel model({{"aten::mm", 4}, {"aten::_fused_adamw_.tensor_lr", 3}});
  StepSimulation result = RunStep({&b}, TestCluster(v1::CUDA, 2), model);
  double reduce = 4;  // 2 (P - 1)/P S
  EXPECT_NEAR(result.step_seconds, 10 + 4 + reduce + 3, 1e-9);
  EXPECT_NEAR(result.breakdown.compute_seconds(), 8, 1e-9);
  EXPECT_NEAR(result.breakdown.exposed_communication_seconds(), 6 + reduce, 1e-9);
  EXPECT_NEAR(result.breakdown.optimizer_seconds(), 3, 1e-9);
  EXPECT_NEAR(result.module_compute_seconds["layers.0"], 4, 1e-9);
  ASSERT_EQ(result.cost_models.size(), 1u);
  EXPECT_EQ(result.cost_models[0].name(), "table");
  EXPECT_EQ(result.cost_models[0].share_of_compute_time(), 1);
  ASSERT_EQ(result.critical_path.size(), 4u);  // all-gather, second mm, all-reduce, optimizer
  EXPECT_EQ(result.lowered.tasks[result.critical_path[0]].stream, comm::kAllGather);
}

TEST(StepSimulationTest, OnACpuCommunicationTakesTheRanksCore) {
  TraceBuilder b = Overlapped(20);
  TableModel model({{"aten::mm", 4}, {"aten::_fused_adamw_.tensor_lr", 3}});
  // 10 s of all-gather and 4 s of mm share one core: 14 s, then mm, all-reduce, optimizer.
  EXPECT_NEAR(RunStep({&b}, TestCluster(v1::CPU, 2), model).step_seconds, 14 + 4 + 4 + 3, 1e-9);
  v1::Cluster spare = TestCluster(v1::CPU, 2);
  spare.set_host_cores(4);
  EXPECT_NEAR(RunStep({&b}, spare, model).step_seconds, 10 + 4 + 4 + 3, 1e-9);
}

// A pipeline on one core: whichever stage has work takes it, so nothing but the sum of all work counts.
TEST(StepSimulationTest, RanksOfAllStagesShareTheCoresOfTheHost) {
  TableModel model({{"aten::mm", 1.0}, {"aten::bmm", 2.0}});
  constexpr int kStages = 4, kMicrobatches = 8;
  std::vector<TraceBuilder> builders;
  for (int s = 0; s < kStages; ++s) builders.push_back(Stage(s, kStages, OneForwardOneBackward(s, kStages, kMicrobatches)));
  std::vector<const TraceBuilder*> pipeline;
  for (const auto& builder : builders) pipeline.push_back(&builder);
  v1::Cluster host = TestCluster(v1::CPU, kStages, 1e18);
  EXPECT_NEAR(RunStep(pipeline, host, model).step_seconds, 3 * (kMicrobatches + kStages - 1), 1e-6);
  host.set_host_cores(1);
  EXPECT_NEAR(RunStep(pipeline, host, model).step_seconds, 3 * kMicrobatches * kStages, 1e-6);
  // Ranks of one stage, all alike: they take turns.
  TraceBuilder b;
  auto x = b.New(v1::FLOAT32, {4}, graph::StorageKind::kExternal);
  b.Op("aten::mm", {x, x}, {x});
  v1::Cluster three = TestCluster(v1::CPU, 3);
  three.set_host_cores(2);
  EXPECT_NEAR(RunStep({&b}, three, model).step_seconds, 2, 1e-9);  // two of them on the first core
}

// No world is done before its cores could have done its work, nor later than one core would do all of it.
TEST(StepSimulationTest, AStepTakesAtLeastTheWorkOfItsRanksDividedByTheCores) {
  SeededRandom random;
  auto draw = [&](int least, int most) { return std::uniform_int_distribution<int>(least, most)(random); };
  for (int i = 0; i < 200; ++i) {
    const int stages = draw(1, 5), ranks = stages * draw(1, 4), cores = draw(1, ranks + 1), microbatches = draw(1, 6);
    const double forward = draw(1, 9), backward = draw(1, 9);
    SCOPED_TRACE(::testing::Message() << stages << " stages, " << ranks << " ranks, " << cores << " cores, " << microbatches
                                    << " microbatches");
    const bool gpipe = draw(0, 1);
    std::vector<TraceBuilder> builders;
    for (int s = 0; s < stages; ++s) {
      builders.push_back(Stage(s, stages, gpipe ? GPipe(microbatches) : OneForwardOneBackward(s, stages, microbatches)));
    }
    std::vector<const TraceBuilder*> pipeline;
    for (const auto& builder : builders) pipeline.push_back(&builder);
    v1::Cluster host = TestCluster(v1::CPU, ranks, 1e18);
    host.set_host_cores(cores);
    const double seconds = RunStep(pipeline, host, TableModel({{"aten::mm", forward}, {"aten::bmm", backward}})).step_seconds;
    const double rank_seconds = microbatches * (forward + backward), work = ranks * rank_seconds;
    EXPECT_GE(seconds, work / cores - 1e-6 * work);
    EXPECT_GE(seconds, rank_seconds - 1e-6 * work);
    EXPECT_LE(seconds, work + 1e-6 * work);
  }
}

TEST(StepSimulationTest, OnACpuSideWorkStartsWhenTheThreadPostsIt) {
  TraceBuilder b;
  int64_t group = b.AddGroup(mesh::Dim::kDp, {0, 1, 2});
  auto x = b.New(v1::UINT8, {20}, graph::StorageKind::kExternal), part = b.New(v1::UINT8, {10}, graph::StorageKind::kExternal);
  b.Op("aten::mm", {x, x}, {x});
  b.stream = comm::kAllGather;
  b.Op("lego::all_gather_into", {x, part, group}, {}, 1);
  TableModel model({{"aten::mm", 4}});
  EXPECT_NEAR(RunStep({&b}, TestCluster(v1::CUDA, 2), model).step_seconds, 10, 1e-9);
  EXPECT_NEAR(RunStep({&b}, TestCluster(v1::CPU, 2), model).step_seconds, 14, 1e-9);
}

TEST(StepSimulationTest, SmallOperatorsAreBoundByDispatch) {
  TraceBuilder b;
  auto x = b.New(v1::FLOAT32, {4}, graph::StorageKind::kExternal);
  for (int i = 0; i < 10; ++i) b.Op("aten::mm", {x, x}, {x});
  v1::Cluster cluster = TestCluster(v1::CUDA, 1);
  cluster.mutable_device()->set_host_dispatch_seconds(5);
  StepSimulation result = RunStep({&b}, cluster, TableModel({{"aten::mm", 1}}));
  EXPECT_NEAR(result.step_seconds, 51, 1e-9);
  EXPECT_NEAR(result.breakdown.launch_seconds(), 41, 1e-9);
  EXPECT_NEAR(result.breakdown.compute_seconds(), 10, 1e-9);
  v1::Cluster cpu = TestCluster(v1::CPU, 1);
  cpu.mutable_device()->set_host_dispatch_seconds(5);
  result = RunStep({&b}, cpu, TableModel({{"aten::mm", 1}}));
  EXPECT_NEAR(result.step_seconds, 60, 1e-9);
  EXPECT_NEAR(result.breakdown.launch_seconds(), 50, 1e-5);
}

TEST(StepSimulationTest, EventsCarryGenerations) {
  TraceBuilder b;
  int64_t group = b.AddGroup(mesh::Dim::kDp, {0, 1, 2});
  auto x = b.New(v1::UINT8, {20}, graph::StorageKind::kExternal), part = b.New(v1::UINT8, {10}, graph::StorageKind::kExternal);
  b.stream = comm::kAllGather;
  b.Op("lego::all_gather_into", {x, part, group}, {}, 1);
  b.RecordEvent(comm::kAllGather, 1);
  b.WaitEvent(comm::kCompute, 1);  // the first record
  b.Op("lego::all_gather_into", {x, part, group}, {}, 1);
  b.RecordEvent(comm::kAllGather, 1);
  b.stream = comm::kCompute;
  b.Op("aten::mm", {x, x}, {x});
  EXPECT_NEAR(RunStep({&b}, TestCluster(v1::CUDA, 2), TableModel({{"aten::mm", 1}})).step_seconds, 20, 1e-9);
  b.WaitEvent(comm::kCompute, 1);  // the second
  b.Op("aten::mm", {x, x}, {x});
  EXPECT_NEAR(RunStep({&b}, TestCluster(v1::CUDA, 2), TableModel({{"aten::mm", 1}})).step_seconds, 21, 1e-9);
  TraceBuilder never;
  never.WaitEvent(comm::kCompute, 9);
  v1::Cluster cluster = TestCluster(v1::CUDA, 1);
  auto result = SimulateStep({{&never.trace(), 0, 0}}, cluster, TableModel({}), CollectiveCostModel(cluster));
  EXPECT_EQ(result.status().code(), absl::StatusCode::kInternal);
}

using testing::Example;

v1::Estimate DetailsOf(const Example& example) {
  v1::Estimate estimate;
  const absl::Status status = AddStepDetails(example.stages, example.cluster, example.simulation, &estimate);
  EXPECT_TRUE(status.ok()) << status;
  return estimate;
}

TEST(StepDetails, ThePartsOfTheCriticalPathAddUpToTheStep) {
  SeededRandom random;
  for (int i = 0; i < 20; ++i) {
    const int64_t stages = 1 + random() % 4, microbatches = 1 + random() % 6, width = 1 + random() % 5000;
    SCOPED_TRACE(::testing::Message() << stages << " stages, " << microbatches << " microbatches, width " << width);
    const Example example(stages, microbatches, width);
    const v1::Estimate details = DetailsOf(example);
    double sum = 0, before = details.critical_path(0).seconds();
    for (const auto& part : details.critical_path()) {
      sum += part.seconds();
      EXPECT_LE(part.seconds(), before) << "the largest first";
      EXPECT_GE(part.tasks(), 1);
      EXPECT_LT(part.stage(), stages);
      before = part.seconds();
    }
    EXPECT_NEAR(sum, example.simulation.step_seconds, 1e-9 * example.simulation.step_seconds);
  }
}

// Compute-bound stages that wait for each other: the way leads through the first stage's work and the last one's.
TEST(StepDetails, TheCriticalPathOfAPipelineLeadsThroughItsStages) {
  const Example example(/*stages=*/2, /*microbatches=*/4, /*width=*/1 << 20);
  std::map<std::string, std::map<int64_t, double>> seconds;
  const v1::Estimate details = DetailsOf(example);
  for (const auto& part : details.critical_path()) seconds[part.kind()][part.stage()] += part.seconds();
  EXPECT_GT(seconds["forward"][0], 0);
  EXPECT_GT(seconds["backward"][1], 0);
  const double work = seconds["forward"][0] + seconds["forward"][1] + seconds["recompute"][0] + seconds["recompute"][1] +
                      seconds["backward"][0] + seconds["backward"][1];
  EXPECT_GT(work, 0.9 * example.simulation.step_seconds);
}

// Three products of one shape in each of three phases, four microbatches: 12 calls of each kind.
TEST(StepDetails, EqualCallsAreOne) {
  const Example example(/*stages=*/1, /*microbatches=*/4);
  const v1::Estimate details = DetailsOf(example);
  ASSERT_GE(details.largest_operators_size(), 6);
  double all = 0, before = details.largest_operators(0).seconds();
  std::map<std::string, int64_t> products;
  for (const auto& op : details.largest_operators()) {
    all += op.seconds();
    EXPECT_LE(op.seconds(), before) << "the largest first";
    before = op.seconds();
    if (op.name() != "aten::mm") continue;
    products[op.phase()] = op.calls();
    EXPECT_EQ(op.shapes(), "bfloat16[4096,512] bfloat16[512,512] -> bfloat16[4096,512]");
    EXPECT_EQ(op.flops(), 2.0 * 4096 * 512 * 512);
    EXPECT_EQ(op.bytes(), 2.0 * (4096 * 512 + 512 * 512 + 4096 * 512));
  }
  EXPECT_EQ(products, (std::map<std::string, int64_t>{{"forward", 12}, {"recompute", 12}, {"backward", 12}}));
  double busy = 0;
  for (const TaskId id : example.simulation.lowered.compute[0]) busy += example.simulation.lowered.program.tasks()[id].seconds;
  EXPECT_LE(details.largest_operators_size(), 10);
  EXPECT_NEAR(all, busy, 1e-9 * busy) << "fewer than ten kinds: nothing is left out";
}

TEST(StepDetails, ModulesOfAllLayersAreTogether) {
  const v1::Estimate details = DetailsOf(Example(/*stages=*/1, /*microbatches=*/2));
  ASSERT_EQ(details.largest_modules_size(), 2);
  EXPECT_EQ(details.largest_modules(0).module(), "model.layers.*.mlp");
  EXPECT_EQ(details.largest_modules(0).modules(), 2);
  EXPECT_EQ(details.largest_modules(1).module(), "model.layers.*.norm");
  EXPECT_EQ(details.largest_modules(1).modules(), 1);
  for (const auto& module : details.largest_modules()) {
    EXPECT_NEAR(module.backward_seconds(), 2 * module.forward_seconds(), 1e-9) << "recomputation and backward do the same here";
  }
  EXPECT_NEAR(details.largest_modules(0).forward_seconds(), 2 * details.largest_modules(1).forward_seconds(), 1e-9);
}

}  // namespace
}  // namespace legoai::sim
