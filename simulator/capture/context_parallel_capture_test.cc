// Of ranks that share sequences the simulator captures the first: it computes as much as any, and no other holds more memory.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "core/operators/op_facts.h"
#include "core/operators/operator_table.h"
#include "core/recipe/recipe.h"
#include "core/trace/annotation.h"
#include "simulator/capture/capture.h"
#include "simulator/memory/memory_simulator.h"
#include "tests/integration/cases.h"

namespace legoai::sim {
namespace {

struct Setting {
  const char* checkpointing;  // "none", "full" or "op"
  v1::ContextParallelBalance balance = v1::BALANCE_HEAD_TAIL;
  v1::DType param = v1::FLOAT32;
  v1::ContextParallelRotation rotation = v1::ROTATE_BY_ALL_GATHER;
};

v1::Recipe RecipeOf(int64_t cp, const Setting& setting) {
  v1::Recipe recipe = parallel::DefaultRecipe();
  auto* training = recipe.mutable_training();
  training->set_local_batch_size(2);
  training->set_seq_len(128);
  training->set_mixed_precision_param(setting.param);
  auto* parallelism = recipe.mutable_parallelism();
  parallelism->set_context_parallel_degree(cp);
  parallelism->set_context_parallel_load_balancer(setting.balance);
  parallelism->set_context_parallel_rotate_method(setting.rotation);
  auto* checkpointing = recipe.mutable_activation_checkpoint();
  const std::string mode = setting.checkpointing;
  checkpointing->set_mode(mode == "none" ? v1::AC_NONE : mode == "full" ? v1::AC_FULL : v1::AC_SELECTIVE);
  checkpointing->set_selective_ac_option("op");
  return recipe;
}

double AttentionFlops(const graph::Trace& trace) {
  double flops = 0;
  for (const graph::Instruction& instruction : trace.instructions) {
    if (instruction.kind != graph::Instruction::Kind::kOperator) continue;
    const OperatorRow* row = FindOperator(trace.OperatorName(instruction));
    if (row != nullptr && row->op_class == OpClass::kAttention)
      flops += FactsOf(graph::InstructionView(trace, instruction), *row).flops;
  }
  return flops;
}

v1::Model EvenLlama() {
  v1::Model model = integration::TinyLlama();
  model.set_vocab_size(64);  // shards of one size
  model.set_intermediate_size(64);
  return model;
}

struct Captured {
  graph::Trace trace;
  int64_t peak_bytes = 0;
};

Captured Capture(int64_t cp, const Setting& setting, int64_t rank) {
  const auto resolved = parallel::ResolvedRecipe::Create(RecipeOf(cp, setting), EvenLlama(), cp);
  EXPECT_TRUE(resolved.ok()) << resolved.status();
  auto captured = CaptureStep(*resolved, rank);
  EXPECT_TRUE(captured.ok()) << captured.status();
  const auto memory = SimulateMemory(captured->trace, {.kind = v1::CPU, .rounding_bytes = 1, .threads = 1});
  EXPECT_TRUE(memory.ok()) << memory.status();
  return {std::move(captured->trace), memory->peak_requested_bytes};
}

int64_t Count(const graph::Trace& trace, const std::string& name, graph::Phase phase) {
  return std::count_if(trace.instructions.begin(), trace.instructions.end(), [&](const graph::Instruction& instruction) {
    return instruction.kind == graph::Instruction::Kind::kOperator && instruction.phase == phase &&
           trace.OperatorName(instruction) == name;
  });
}

TEST(ContextParallelCapture, TheFirstRankNeedsAsMuchAsAny) {
  const auto head_tail = v1::BALANCE_HEAD_TAIL, none = v1::BALANCE_NONE;
  const auto ring = v1::ROTATE_BY_RING;
  for (const int64_t cp : {2, 4}) {
    for (const Setting& setting :
         {Setting{"none"}, Setting{"full"}, Setting{"op"}, Setting{"none", none}, Setting{"op", none},
          Setting{"none", head_tail, v1::BFLOAT16}, Setting{"op", head_tail, v1::BFLOAT16},
          Setting{"none", head_tail, v1::FLOAT32, ring}, Setting{"full", head_tail, v1::FLOAT32, ring},
          Setting{"op", head_tail, v1::FLOAT32, ring}, Setting{"none", none, v1::FLOAT32, ring},
          Setting{"op", none, v1::FLOAT32, ring}, Setting{"none", head_tail, v1::BFLOAT16, ring}}) {
      SCOPED_TRACE(testing::Message() << "cp " << cp << ", " << setting.checkpointing << ", balance " << setting.balance
                                      << ", method " << setting.rotation);
      std::vector<double> flops;
      std::vector<int64_t> peaks;
      for (int64_t rank = 0; rank < cp; ++rank) {
        const Captured captured = Capture(cp, setting, rank);
        flops.push_back(AttentionFlops(captured.trace));
        peaks.push_back(captured.peak_bytes);
      }
      EXPECT_EQ(flops[0], *std::max_element(flops.begin(), flops.end()));
      EXPECT_EQ(flops[0] == *std::min_element(flops.begin(), flops.end()), setting.balance == head_tail);
      EXPECT_EQ(peaks[0], *std::max_element(peaks.begin(), peaks.end())) << testing::PrintToString(peaks);
    }
  }
}

// Forward a block of a model passes keys and values on cp - 1 times, backward once more, and their gradients as often.
TEST(ContextParallelCapture, ARingHasItsHops) {
  const auto ring = v1::ROTATE_BY_RING;
  const int64_t layers = EvenLlama().num_hidden_layers();
  for (const int64_t cp : {2, 4}) {
    const graph::Trace trace = Capture(cp, {"none", v1::BALANCE_HEAD_TAIL, v1::FLOAT32, ring}, 0).trace;
    EXPECT_EQ(Count(trace, "lego::rotate_into", graph::Phase::kForward), layers * (cp - 1));
    EXPECT_EQ(Count(trace, "lego::rotate_into", graph::Phase::kBackward), layers * 2 * (cp - 1));
    for (const graph::Instruction& instruction : trace.instructions) {
      if (instruction.kind == graph::Instruction::Kind::kOperator && trace.OperatorName(instruction) == "lego::rotate_into") {
        EXPECT_EQ(instruction.stream, comm::kRotate);
      }
    }
    const graph::Trace named = Capture(cp, {"none", v1::BALANCE_HEAD_TAIL, v1::FLOAT32, v1::ROTATE_BY_ALL_TO_ALL}, 0).trace;
    EXPECT_EQ(named.Dump(true), trace.Dump(true)) << "TorchTitan's name of it";
  }
}

// Where the output of attention is kept, recomputation neither attends nor communicates.
TEST(ContextParallelCapture, KeptAttentionTravelsNoSecondTime) {
  for (const auto rotation : {v1::ROTATE_BY_RING, v1::ROTATE_BY_ALL_GATHER}) {
    const auto head_tail = v1::BALANCE_HEAD_TAIL;
    const Captured kept = Capture(4, {"op", head_tail, v1::FLOAT32, rotation}, 0),
                   full = Capture(4, {"full", head_tail, v1::FLOAT32, rotation}, 0);
    EXPECT_EQ(Count(kept.trace, "lego::attention", graph::Phase::kRecompute), 0);
    EXPECT_EQ(Count(kept.trace, "lego::rotate_into", graph::Phase::kRecompute), 0);
    EXPECT_GT(Count(full.trace, "lego::attention", graph::Phase::kRecompute), 0);
    EXPECT_EQ(Count(full.trace, "lego::rotate_into", graph::Phase::kRecompute) > 0, rotation == v1::ROTATE_BY_RING);
  }
}

// Of a long sequence no rank has all keys and values at once.
TEST(ContextParallelCapture, ARingTakesLessMemoryThanAGather) {
  const auto head_tail = v1::BALANCE_HEAD_TAIL;
  EXPECT_LT(Capture(8, {"full", head_tail, v1::FLOAT32, v1::ROTATE_BY_RING}, 0).peak_bytes,
            Capture(8, {"full", head_tail, v1::FLOAT32, v1::ROTATE_BY_ALL_GATHER}, 0).peak_bytes);
}

}  // namespace
}  // namespace legoai::sim
