// The passes on Traces written by hand. The oracle runs a Trace on two ranks in lockstep, on plain numbers, with collectives that
// are done at once; what a pass leaves must give the same numbers.
#include "core/trace/passes/passes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>

#include "absl/strings/str_cat.h"
#include "core/trace/annotation.h"
#include "core/trace/effects.h"
#include "core/trace/passes/pass_check.h"
#include "core/trace/passes/pipeline.h"
#include "core/trace/passes/testing/lockstep.h"
#include "core/trace/passes/trace_dump.h"
#include "core/trace/testing/trace_builder.h"

namespace legoai::graph {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr int64_t kRanks = 2;

// A step of one rank: layers of parameters that are gathered before their layer, used one after the other, and freed; backward
// the other way round, with gradients. As worker/parallel/fsdp.cc records it with a unit for each parameter.
class Step {
 public:
  using Tensor = TraceBuilder::Tensor;
  struct Parameter {
    std::string name;
    int64_t shard = 0, held = 0;  // elements; the rank holds fewer where the parameter is padded
    Tensor master = {}, whole = {}, sum = {};
    int64_t event = 0;
  };

  // `replicated`: the last sums are summed over replicas, too, which the oracle takes to be the same ranks.
  Step(int64_t rank, const std::vector<std::vector<std::pair<std::string, int64_t>>>& layers, bool replicated = false)
      : rank_(rank), replicated_(replicated) {
    group_ = b_.AddGroup(mesh::Dim::kDpShardCp, {.first = 0, .stride = 1, .size = kRanks});
    replicas_ = b_.AddGroup(mesh::Dim::kDpReplicate, {.first = 0, .stride = 1, .size = kRanks});
    for (const auto& layer : layers) {
      layers_.emplace_back();
      for (const auto& [name, elements] : layer) {
        Parameter p{name, (elements + kRanks - 1) / kRanks};
        p.held = std::min(p.shard, elements - rank * p.shard);
        p.master = b_.Input(name, {p.held});
        const uint32_t whole = b_.AddStorage(0, StorageKind::kExternal, Category::kUnshardedParameter, name + ".unsharded");
        p.whole = b_.View(whole, v1::FLOAT32, {kRanks * p.shard}, {1});
        p.event = events_, events_ += 6;
        layers_.back().push_back(p);
      }
    }
  }

  Trace Make(int microbatches) {
    x_ = b_.Input("x", {4});
    for (int m = 0; m < microbatches; ++m) {
      b_.phase = Phase::kForward;
      microbatch_ = m;
      for (auto& layer : layers_) {
        for (Parameter& p : layer) GatherOne(p);
        for (Parameter& p : layer) UseOne(p);
        for (Parameter& p : layer) Release(p);
      }
      b_.phase = Phase::kBackward;
      for (auto layer = layers_.rbegin(); layer != layers_.rend(); ++layer) {
        for (Parameter& p : *layer) GatherOne(p);
        for (auto p = layer->rbegin(); p != layer->rend(); ++p) Gradient(*p, m, m + 1 == microbatches);
      }
    }
    for (auto& layer : layers_) {
      for (Parameter& p : layer) {
        if (replicated_) Event(p.name, "wait", comm::kCompute, p.event + 4);
      }
    }
    b_.phase = Phase::kOptimizer;
    microbatch_ = -1;
    for (auto& layer : layers_) {
      for (Parameter& p : layer) Op("", "test::update", {p.master, View(p.sum, {p.held}, {1}, 0)}, {}, 1);
    }
    for (auto& layer : layers_) {
      for (Parameter& p : layer) FreeNow(p.sum);
    }
    Trace trace = b_.trace();
    trace.outputs["x"] = x_.value;
    return trace;
  }

 private:
  Instruction& Op(const std::string& module, const std::string& name, std::vector<TraceBuilder::Arg> arguments,
                  std::vector<Tensor> results, uint64_t writes = 0, uint16_t stream = 0) {
    if (modules_.count(module) == 0) modules_[module] = module.empty() ? 0 : b_.AddModule(module);
    b_.module = modules_[module];
    b_.stream = stream;
    Instruction& made = b_.Op(name, std::move(arguments), std::move(results), writes);
    made.microbatch = microbatch_;
    return made;
  }
  void FreeNow(Tensor tensor) {
    Instruction& free = b_.Free(b_.StorageOf(tensor));
    free.phase = b_.phase;
    free.microbatch = microbatch_;
  }
  Tensor View(Tensor of, std::vector<int64_t> sizes, std::vector<int64_t> strides, int64_t offset) {
    return b_.View(b_.StorageOf(of), v1::FLOAT32, std::move(sizes), std::move(strides), offset);
  }
  Tensor Empty(const std::string& module, std::vector<int64_t> sizes, Category category) {
    const Tensor made = b_.New(v1::FLOAT32, sizes, StorageKind::kInner, category);
    Op(module, "aten::empty.memory_format", {sizes}, {made});
    return made;
  }
  void Event(const std::string& module, const char* what, int64_t stream, int64_t event) {
    Op(module, absl::StrCat("lego::", what, "_event"), {stream, event}, {});
  }

  void GatherOne(Parameter& p) {
    const Tensor buffer = Empty(p.name, {kRanks, p.shard}, Category::kAllGatherBuffer);
    const Tensor own = View(buffer, {p.shard}, {1}, rank_ * p.shard);
    Op(p.name, "aten::select.int", {buffer, int64_t{0}, rank_}, {own});
    Op(p.name, "aten::copy_", {View(buffer, {p.held}, {1}, rank_ * p.shard), p.master}, {}, 1);
    // Of no elements where nothing is padded: both ranks have the same instructions, as Lockstep wants them.
    Op(p.name, "aten::zero_", {View(buffer, {p.shard - p.held}, {1}, rank_ * p.shard + p.held)}, {}, 1);
    Event(p.name, "record", comm::kCompute, p.event);
    Event(p.name, "wait", comm::kAllGather, p.event);
    Op(p.name, "lego::all_gather_into", {buffer, own, group_}, {}, 1, comm::kAllGather);
    Event(p.name, "record", comm::kAllGather, p.event + 1);
    Event(p.name, "wait", comm::kCompute, p.event + 1);
    Op(p.name, "lego::resize_storage_", {p.whole, kRanks * p.shard * 4}, {}, 1);
    const Tensor rows = View(p.whole, {kRanks, p.shard}, {p.shard, 1}, 0);
    Op(p.name, "aten::view", {p.whole, std::vector<int64_t>{kRanks, p.shard}}, {rows});
    Op(p.name, "aten::copy_", {rows, buffer}, {}, 1);
    FreeNow(buffer);
  }
  void UseOne(Parameter& p) {
    const Tensor out = b_.New(v1::FLOAT32, {4});
    Op(p.name, "test::use", {x_, p.whole}, {out});
    if (b_.StorageOf(x_) != b_.trace().values[b_.trace().inputs.at("x")].storage) FreeNow(x_);
    x_ = out;
  }
  void Release(Parameter& p) { Op(p.name, "lego::resize_storage_", {p.whole, int64_t{0}}, {}, 1); }

  // Waits for an event first, which the reduction or the compute stream has recorded.
  void SumOverReplicas(Parameter& p, int64_t after) {
    Event(p.name, "wait", comm::kReplicate, after);
    Op(p.name, "lego::all_reduce_", {p.sum, replicas_, int64_t{0}}, {}, 1, comm::kReplicate);
    Event(p.name, "record", comm::kReplicate, p.event + 4);
  }

  void Gradient(Parameter& p, int microbatch, bool last) {
    UseOne(p);
    const Tensor gradient = b_.New(v1::FLOAT32, {kRanks * p.shard}, StorageKind::kInner, Category::kUnshardedGradient);
    Op(p.name, "test::gradient", {x_, p.whole}, {gradient});
    Release(p);
    const Tensor buffer = Empty(p.name, {kRanks, p.shard}, Category::kReduceScatterBuffer);
    Op(p.name, "aten::copy_", {buffer, View(gradient, {kRanks, p.shard}, {p.shard, 1}, 0)}, {}, 1);
    FreeNow(gradient);
    const Tensor sum = Empty(p.name, {p.shard}, Category::kShardedGradient);
    Event(p.name, "record", comm::kCompute, p.event + 2);
    Event(p.name, "wait", comm::kReduceScatter, p.event + 2);
    Op(p.name, "lego::reduce_scatter_into", {sum, buffer, group_}, {}, 1, comm::kReduceScatter);
    Event(p.name, "record", comm::kReduceScatter, p.event + 3);
    if (microbatch == 0) p.sum = sum;
    const bool over_replicas = replicated_ && last;
    if (over_replicas && microbatch == 0) SumOverReplicas(p, p.event + 3);
    Event(p.name, "wait", comm::kCompute, p.event + 3);
    FreeNow(buffer);
    if (microbatch == 0) return;
    Op(p.name, "aten::add_.Tensor", {p.sum, sum, int64_t{1}}, {}, 1);
    FreeNow(sum);
    if (!over_replicas) return;
    Event(p.name, "record", comm::kCompute, p.event + 5);
    SumOverReplicas(p, p.event + 5);
  }

  TraceBuilder b_;
  const int64_t rank_;
  const bool replicated_;
  int64_t group_ = 0, replicas_ = 0, events_ = 0;
  int microbatch_ = 0;
  std::vector<std::vector<Parameter>> layers_;
  std::map<std::string, uint32_t> modules_;
  Tensor x_{};
};

using Passes = std::vector<std::function<absl::StatusOr<Trace>(Trace)>>;

// Both ranks' Traces after the passes, each of which is checked.
std::vector<Trace> After(const std::vector<Trace>& traces, const Passes& passes) {
  std::vector<Trace> after = traces;
  for (Trace& trace : after) {
    for (const auto& pass : passes) {
      absl::StatusOr<Trace> next = pass(trace);
      EXPECT_TRUE(next.ok()) << next.status();
      if (!next.ok()) return traces;
      EXPECT_THAT(TraceFindings(*next), IsEmpty());
      EXPECT_THAT(PassFindings(trace, *next), IsEmpty());
      trace = *std::move(next);
    }
  }
  return after;
}

std::vector<Trace> TwoRanks(int microbatches, bool replicated = false) {
  std::vector<Trace> traces;
  for (int64_t rank = 0; rank < kRanks; ++rank) {
    Step step(rank, {{{"model.embed_tokens.weight", 5}},
                     {{"model.layers.0.mlp.up_proj.weight", 6},
                      {"model.layers.0.norm.weight", 2},
                      {"model.layers.0.mlp.down.weight", 7}},
                     {{"model.layers.1.mlp.up_proj.weight", 6},
                      {"model.layers.1.norm.weight", 2},
                      {"model.layers.1.mlp.down.weight", 7}},
                     {{"lm_head.weight", 8}}},
              replicated);
    traces.push_back(step.Make(microbatches));
    EXPECT_THAT(TraceFindings(traces.back()), IsEmpty());
  }
  return traces;
}

const std::vector<parallel::FsdpBucket> kLayers = {{"layers.0"}, {"layers.1"}};
const auto kBucket = [](Trace trace) { return BucketCollectives(std::move(trace), kLayers, kLayers); };

// Other buckets in backward than in forward.
const auto kApart = [](Trace trace) {
  return BucketCollectives(std::move(trace), kLayers,
                           {{"tok_embeddings", "layers.0", "layers.1.norm"}, {"layers.1.mlp", "output"}});
};

std::vector<std::string> Outline(const Trace& trace) {
  std::vector<std::string> lines;
  for (const Instruction& instruction : trace.instructions) {
    if (instruction.kind != Instruction::Kind::kOperator) continue;
    const std::string &name = trace.OperatorName(instruction), &module = trace.modules[instruction.module];
    const auto event = EventOf(trace, instruction);
    const std::string half = instruction.phase == Phase::kForward ? "f " : "b ";
    if (name == "lego::all_gather_into") lines.push_back(half + "gather " + module);
    if (name == "lego::reduce_scatter_into") lines.push_back(half + "reduce " + module);
    if (event && !event->is_record && event->stream == comm::kCompute) lines.push_back(half + "wait " + module);
    if (name == "test::use") lines.push_back(half + "use " + module);
  }
  return lines;
}

TEST(Passes, LeaveTheNumbersOfBothRanks) {
  for (int i = 0; i < 6; ++i) {
    const int microbatches = 1 + i % 3;
    const bool replicated = i >= 3;
    SCOPED_TRACE(absl::StrCat(microbatches, " microbatches", replicated ? ", with replicas" : ""));
    const std::vector<Trace> traces = TwoRanks(microbatches, replicated);
    Lockstep due(traces);
    due.Run();
    const std::vector<Passes> all = {{GatherAtUse},
                                     {GatherAtUse, ReorderCollectives},
                                     {GatherAtUse, kBucket},
                                     {GatherAtUse, kBucket, ReorderCollectives},
                                     {GatherAtUse, kApart, ReorderCollectives},
                                     {kBucket, ReorderCollectives}};
    for (size_t p = 0; p < all.size(); ++p) {
      const std::vector<Trace> after = After(traces, all[p]);
      Lockstep got(after);
      got.Run();
      for (int64_t rank = 0; rank < kRanks; ++rank)
        EXPECT_EQ(got.Results(rank), due.Results(rank)) << "passes " << p << " rank " << rank;
    }
  }
}

TEST(GatherAtUse, PutsEachGatherBeforeItsUse) {
  const Trace after = After(TwoRanks(1), {GatherAtUse})[0];
  const std::vector<std::string> lines = Outline(after);
  for (const char* name : {"model.embed_tokens.weight", "model.layers.0.norm.weight", "model.layers.1.mlp.down.weight"}) {
    const auto use = std::find(lines.begin(), lines.end(), absl::StrCat("f use ", name));
    ASSERT_GE(use - lines.begin(), 2) << name;
    EXPECT_EQ(use[-1], absl::StrCat("f wait ", name));
    EXPECT_EQ(use[-2], absl::StrCat("f gather ", name));
  }
}

TEST(BucketCollectives, HasOneOfEachForABucketWithTheSameBytes) {
  const std::vector<Trace> traces = TwoRanks(1);
  const TraceStatistics before = StatisticsOf(traces[0]), after = StatisticsOf(After(traces, {GatherAtUse, kBucket})[0]);
  EXPECT_EQ(before.collectives, 8 * 3);        // forward, backward, gradient
  EXPECT_EQ(after.collectives, 4 * 3);         // two layers, and two parameters in no bucket
  EXPECT_EQ(before.collective_bytes, after.collective_bytes);
  EXPECT_EQ(before.storages - after.storages, 2 * 4 * 2);  // in each layer three became one of the buffers and of the sums
}

TEST(BucketCollectives, OfForwardAndBackwardMayDiffer) {
  const std::vector<Trace> traces = TwoRanks(1);
  const TraceStatistics before = StatisticsOf(traces[0]), after = StatisticsOf(After(traces, {GatherAtUse, kApart})[0]);
  EXPECT_EQ(after.collectives, 4 + 2 + 2);  // forward, backward, gradient
  EXPECT_EQ(before.collective_bytes, after.collective_bytes);
}

TEST(BucketCollectives, HasOneSumOverReplicasForABucket) {
  for (const int microbatches : {1, 2}) {
    const std::vector<Trace> traces = TwoRanks(microbatches, /*replicated=*/true);
    const auto sums = [](const Trace& trace) {
      return std::count_if(trace.instructions.begin(), trace.instructions.end(), [&](const Instruction& instruction) {
        return instruction.kind == Instruction::Kind::kOperator && trace.OperatorName(instruction) == "lego::all_reduce_";
      });
    };
    const Trace after = After(traces, {GatherAtUse, kBucket, ReorderCollectives})[0];
    EXPECT_EQ(sums(traces[0]), 8);
    EXPECT_EQ(sums(after), 4);
    EXPECT_EQ(StatisticsOf(traces[0]).collective_bytes, StatisticsOf(after).collective_bytes);
  }
}

TEST(ReorderCollectives, GathersAheadInForwardAndBehindInBackwardAndWaitsLateForSums) {
  const std::vector<std::string> lines = Outline(After(TwoRanks(1), {GatherAtUse, kBucket, ReorderCollectives})[0]);
  const auto place = [&](const std::string& line, int nth = 0) {
    auto at = lines.begin() - 1;
    for (int i = 0; i <= nth; ++i) at = std::find(at + 1, lines.end(), line);
    EXPECT_NE(at, lines.end()) << line;
    return at - lines.begin();
  };
  EXPECT_EQ(place("f wait model.layers.0"), place("f gather model.layers.1") + 1);
  // In backward a gather follows the wait of the one before; the first wait of a bucket there is the gather's.
  EXPECT_EQ(place("b gather model.layers.0"), place("b wait model.layers.1") + 1);
  EXPECT_LT(place("b reduce model.layers.1"), place("b wait model.layers.1", 1));
  EXPECT_GT(place("b wait model.layers.1", 1), place("b use model.layers.0.mlp.up_proj.weight"));
  EXPECT_EQ(place("b wait model.layers.1", 1) + 1, place("b reduce model.layers.0"));
  EXPECT_EQ(lines.back(), "b wait model.embed_tokens.weight");
}

TEST(PassFindings, SeeWhatAPassMustNotDo) {
  const Trace trace = TwoRanks(1)[0];
  Trace swapped = trace;  // two updates read sums before they are complete
  const auto wait = std::find_if(swapped.instructions.begin(), swapped.instructions.end(), [&](const Instruction& instruction) {
    return trace.OperatorName(instruction) == "lego::wait_event" && EventOf(trace, instruction)->stream == comm::kCompute;
  });
  swapped.instructions.erase(wait);
  EXPECT_THAT(TraceFindings(swapped), Not(IsEmpty()));
  Trace fewer = trace;
  const auto gather = std::find_if(fewer.instructions.begin(), fewer.instructions.end(), [&](const Instruction& instruction) {
    return trace.OperatorName(instruction) == "lego::all_gather_into";
  });
  fewer.instructions.erase(gather);
  EXPECT_THAT(PassFindings(trace, fewer), Not(IsEmpty()));
  Trace no_output = trace;
  no_output.outputs.clear();
  EXPECT_THAT(PassFindings(trace, no_output)[0], HasSubstr("output x is gone"));
}

TEST(DumpText, ChangesWhereTheTraceChanges) {
  const Trace before = TwoRanks(1)[0];
  Trace after = before;
  after.storages.insert(after.storages.begin(), Storage{});  // every number shifts
  for (Value& value : after.values) ++value.storage;
  for (Instruction& instruction : after.instructions) {
    if (instruction.kind == Instruction::Kind::kFree) ++instruction.immediate;
  }
  EXPECT_EQ(DumpText(before), DumpText(after));
  EXPECT_THAT(DumpText(before),
              HasSubstr("forward0 compute [lm_head.weight] %forward0.lm_head.weight.use.1:FLOAT32[4]{1} = test::use("));
}

}  // namespace
}  // namespace legoai::graph
