// What data parallelism dispatches, seen in recordings of a step on a fake runtime: real kernels, communication that does
// nothing.
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/trace/effects.h"
#include "core/trace/verify.h"
#include "worker/comm/runtime.h"
#include "worker/comm/testing/process_group_test_util.h"
#include "worker/graph/recorder.h"
#include "worker/parallel/activation_checkpoint.h"
#include "worker/parallel/fsdp.h"
#include "worker/parallel/testing/tiny_model.h"

namespace legoai::parallel {
namespace {

using graph::Category;
using graph::Instruction;
using graph::Phase;
using graph::Trace;
using mesh::Mesh;

struct Case {
  Mesh mesh = {};
  int64_t microbatches = 1;
  testing::TinyOptions model = {};
  bool checkpoint = false;
  DataParallelOptions options = {};
};

constexpr int64_t kBatch = 2, kSeq = 5, kVocab = 11;

Trace Capture(const Case& test, int64_t rank = 0) {
  at::set_num_threads(1);
  auto runtime = comm::Runtime::Create(rank, test.mesh.Groups(rank), comm::MakeFakeStreams(), nullptr);
  EXPECT_TRUE(runtime.ok());
  comm::RuntimeScope scope(runtime->get());
  auto model = testing::MakeTinyModel(test.model);
  v1::ActivationCheckpoint checkpoint;
  checkpoint.set_mode(test.checkpoint ? v1::AC_FULL : v1::AC_NONE);
  ApplyActivationCheckpoint(*model, checkpoint);
  DataParallel data_parallel(*model, test.options);
  testing::FillMasters(*model);
  data_parallel.AllocateValues(at::kCPU);
  model::StepContext& context = model->context();
  context.rng = at::arange(2, at::kLong);
  context.samples = at::arange(kBatch, at::kLong);
  const at::Tensor tokens = at::arange(kBatch * kSeq, at::kLong).view({kBatch, kSeq}) % kVocab;

  data_parallel.GatherAtFirst();
  graph::Recorder recorder;
  for (const StateTensor& state : data_parallel.State()) recorder.Input(state.name, state.tensor, state.category);
  recorder.Input("rng", context.rng, Category::kInput);
  recorder.Input("samples", context.samples, Category::kInput);
  recorder.Input("tokens", tokens, Category::kInput);
  for (int64_t m = 0; m < test.microbatches; ++m) {
    at::Tensor loss;
    {
      graph::PhaseScope forward(Phase::kForward);
      loss = testing::TinyLoss((*model)(tokens), tokens, 0.1);
    }
    graph::PhaseScope backward(Phase::kBackward);
    data_parallel.BeginBackward(m + 1 == test.microbatches);
    loss.backward();
  }
  graph::PhaseScope optimizer(Phase::kOptimizer);
  data_parallel.FinishBackward();
  {
    at::NoGradGuard no_grad;
    for (model::Parameter* p : model->Parameters()) p->master.sub_(p->grad, 0.5);
  }
  data_parallel.ReleaseGradients();
  data_parallel.GatherUpdated();
  EXPECT_TRUE((*runtime)->Drain().ok());
  return recorder.Finish();
}

std::vector<Case> AllCases() {
  std::vector<Case> cases;
  for (const Mesh& mesh : {Mesh{}, Mesh{.dp_replicate = 4}, Mesh{.dp_shard = 3}, Mesh{.dp_replicate = 2, .dp_shard = 2},
                           Mesh{.dp_shard = 6, .reshard = 3}}) {
    for (bool checkpoint : {false, true}) {
      for (int64_t microbatches : {1, 2}) {
        for (auto param : {at::kFloat, at::kBFloat16}) {
          for (bool each : {false, true}) {
            cases.push_back({.mesh = mesh,
                             .microbatches = microbatches,
                             .model = {.tied = !each},
                             .checkpoint = checkpoint,
                             .options = {.precision = {param, at::kFloat}, .reduce_each_microbatch = each}});
          }
        }
      }
    }
  }
  return cases;
}

TEST(DataParallelTrace, StreamsDoNotRaceAndNothingUnwrittenIsRead) {
  for (const Case& test : AllCases()) {
    SCOPED_TRACE(::testing::Message() << test.mesh.dp_replicate << "x" << test.mesh.dp_shard << " checkpoint " << test.checkpoint
                                      << " microbatches " << test.microbatches << " "
                                      << c10::toString(test.options.precision.param) << " each "
                                      << test.options.reduce_each_microbatch);
    for (int64_t rank : {int64_t{0}, test.mesh.world() - 1}) {  // the last one holds fewer rows
      const Trace trace = Capture(test, rank);
      EXPECT_EQ(graph::Races(trace), std::vector<std::string>());
      EXPECT_EQ(graph::BadReads(trace), std::vector<std::string>());
      EXPECT_EQ(trace.warnings, std::vector<std::string>());
    }
  }
}

// Index of the first instruction of that operator, module and phase.
int64_t Find(const Trace& trace, const std::string& name, const std::string& module, Phase phase) {
  for (size_t i = 0; i < trace.instructions.size(); ++i) {
    const Instruction& instruction = trace.instructions[i];
    if (instruction.kind == Instruction::Kind::kOperator && instruction.phase == phase &&
        trace.OperatorName(instruction) == name && trace.modules[instruction.module] == module) {
      return i;
    }
  }
  ADD_FAILURE() << "no " << name << " in " << module;
  return -1;
}

// In the phase, or in all of them.
int64_t Count(const Trace& trace, const std::string& name, std::optional<Phase> phase = std::nullopt) {
  int64_t count = 0;
  for (const Instruction& instruction : trace.instructions) {
    if (phase && instruction.phase != *phase) continue;
    count += instruction.kind == Instruction::Kind::kOperator && trace.OperatorName(instruction) == name;
  }
  return count;
}

TEST(DataParallelTrace, GathersRunAheadOfTheComputationThatNeedsThem) {
  const Trace trace = Capture({.mesh = {.dp_shard = 2}});
  const std::string gather = "lego::all_gather_into", reduce = "lego::reduce_scatter_into";
  auto forward = [&](const std::string& name, const std::string& module) { return Find(trace, name, module, Phase::kForward); };
  auto backward = [&](const std::string& name, const std::string& module) { return Find(trace, name, module, Phase::kBackward); };
  EXPECT_LT(forward(gather, "blocks.1"), forward("aten::gelu", "blocks.0"));
  EXPECT_GT(forward(gather, "blocks.1"), forward(gather, "blocks.0"));
  EXPECT_LT(forward(gather, "head"), forward("aten::gelu", "blocks.2"));
  EXPECT_LT(backward(gather, "blocks.1"), backward("aten::gelu_backward", "blocks.2"));
  EXPECT_GT(backward(gather, "blocks.0"), backward("aten::gelu_backward", "blocks.2"));
  EXPECT_LT(backward(gather, "blocks.0"), backward("aten::gelu_backward", "blocks.1"));
  EXPECT_LT(backward(reduce, "blocks.2"), backward("aten::gelu_backward", "blocks.1"));
  // Five units forward; backward the blocks again: the head stayed, and an embedding's gradient needs no weight.
  EXPECT_EQ(Count(trace, gather), 5 + 3);
  EXPECT_EQ(Count(trace, reduce), 5);
}

TEST(DataParallelTrace, ATiedUnitIsGatheredOnce) {
  EXPECT_EQ(Count(Capture({.mesh = {.dp_shard = 2}, .model = {.tied = true}}), "lego::all_gather_into"), 1 + 3 + 3);
}

TEST(DataParallelTrace, WithoutReshardEverythingIsGatheredOncePerStep) {
  const Case test{.mesh = {.dp_shard = 2}, .microbatches = 3, .options = {.reshard_after_forward = false}};
  EXPECT_EQ(Count(Capture(test), "lego::all_gather_into"), 5);
}

TEST(DataParallelTrace, ValuesThatStayAreGatheredAfterTheUpdateAndNeverResized) {
  const std::string gather = "lego::all_gather_into";
  for (const Mesh& mesh : {Mesh{.dp_shard = 2}, Mesh{.dp_replicate = 2, .dp_shard = 3}}) {
    for (const c10::ScalarType param : {at::kFloat, at::kBFloat16}) {
      const Trace trace =
          Capture({.mesh = mesh,
                   .microbatches = 3,
                   .options = {.precision = {param, at::kFloat}, .reshard_after_forward = false, .values_stay = true}});
      EXPECT_EQ(Count(trace, gather), 5) << "of the embedding, three blocks and the head";
      EXPECT_EQ(Count(trace, gather, Phase::kOptimizer), 5);
      EXPECT_EQ(Count(trace, "lego::resize_storage_"), 0);
      EXPECT_EQ(graph::Races(trace), std::vector<std::string>());
      EXPECT_EQ(graph::BadReads(trace), std::vector<std::string>());
    }
  }
}

TEST(DataParallelTrace, BackwardGathersOverTheSmallerGroup) {
  const Mesh mesh{.dp_shard = 4, .reshard = 2};
  for (const c10::ScalarType param : {at::kFloat, at::kBFloat16}) {
    const Trace trace = Capture({.mesh = mesh, .microbatches = 2, .options = {.precision = {param, at::kFloat}}});
    std::map<Phase, std::map<std::string, int>> gathers;
    for (const Instruction& instruction : trace.instructions) {
      if (instruction.kind != Instruction::Kind::kOperator) continue;
      const graph::InstructionView op(trace, instruction);
      if (op.name() != "lego::all_gather_into") continue;
      ++gathers[instruction.phase][mesh::NameOf(mesh.Groups(0).at(*op.Constant<int64_t>(2)).dim)];
    }
    EXPECT_EQ(gathers[Phase::kForward], (std::map<std::string, int>{{"dp_shard", 2 * 5}}));
    EXPECT_EQ(gathers[Phase::kBackward], (std::map<std::string, int>{{"reshard", 2 * 3}})) << "three blocks; the head stayed";
    EXPECT_EQ(gathers.size(), 2u);
  }
}

TEST(DataParallelTrace, PrefetchGoesAsManyLayersAhead) {
  const std::string gather = "lego::all_gather_into";
  for (const int64_t depth : {0, 1, 2, 9}) {
    SCOPED_TRACE(depth);
    const Trace trace = Capture({.mesh = {.dp_shard = 2}, .options = {.prefetch_depth = depth}});
    const auto compute = [&](int block) {
      return Find(trace, "aten::gelu", "blocks." + std::to_string(block), Phase::kForward);
    };
    for (const int ahead : {1, 2}) {
      const auto gathered = Find(trace, gather, "blocks." + std::to_string(ahead), Phase::kForward);
      EXPECT_EQ(gathered < compute(0), depth >= ahead) << ahead;
    }
    EXPECT_EQ(Count(trace, gather), 5 + 3) << "nothing is gathered twice";
    EXPECT_EQ(graph::Races(trace), std::vector<std::string>());
  }
}

TEST(DataParallelTrace, ReductionsFollowTheMode) {
  auto count = [](Mesh mesh, bool each, const std::string& name) {
    return Count(Capture({.mesh = mesh, .microbatches = 3, .options = {.reduce_each_microbatch = each}}), name);
  };
  EXPECT_EQ(count({.dp_shard = 2}, true, "lego::reduce_scatter_into"), 15);
  EXPECT_EQ(count({.dp_shard = 2}, false, "lego::reduce_scatter_into"), 5);
  EXPECT_EQ(count({.dp_replicate = 2, .dp_shard = 2}, true, "lego::all_reduce_"), 5) << "over replicas once a step";
  EXPECT_EQ(count({.dp_replicate = 2}, true, "lego::all_reduce_"), 5);
  EXPECT_EQ(count({}, true, "lego::all_reduce_"), 0);
}

// The largest number of storages of a category alive at once.
int64_t MostAlive(const Trace& trace, Category category) {
  std::set<uint32_t> alive;
  size_t most = 0;
  for (const Instruction& instruction : trace.instructions) {
    if (instruction.kind == Instruction::Kind::kFree) {
      alive.erase(instruction.immediate);
      continue;
    }
    for (int i = 0; i < instruction.result_count; ++i) {
      const graph::Argument& result = trace.results[instruction.first_result + i];
      if (result.kind != graph::Argument::Kind::kValue) continue;
      const uint32_t storage = trace.values[result.index].storage;
      if (trace.storages[storage].category == category) alive.insert(storage);
    }
    most = std::max(most, alive.size());
  }
  return most;
}

TEST(DataParallelTrace, BuffersGoWhenComputeWaits) {
  for (bool checkpoint : {false, true}) {
    const Trace trace = Capture({.mesh = {.dp_shard = 2}, .microbatches = 2, .checkpoint = checkpoint});
    EXPECT_EQ(MostAlive(trace, Category::kAllGatherBuffer), 1);
    EXPECT_EQ(MostAlive(trace, Category::kReduceScatterBuffer), 1);
  }
}

TEST(DataParallelTrace, RecomputationIsMarkedAndGathersNothing) {
  const Trace trace = Capture({.mesh = {.dp_shard = 2}, .checkpoint = true});
  int64_t recomputed = 0;
  for (const Instruction& instruction : trace.instructions) {
    if (instruction.kind != Instruction::Kind::kOperator || instruction.phase != Phase::kRecompute) continue;
    ++recomputed;
    EXPECT_FALSE(trace.OperatorName(instruction).starts_with("lego::")) << trace.OperatorName(instruction);
    EXPECT_TRUE(trace.modules[instruction.module].starts_with("blocks.")) << trace.modules[instruction.module];
  }
  EXPECT_GT(recomputed, 30);
}

}  // namespace
}  // namespace legoai::parallel
