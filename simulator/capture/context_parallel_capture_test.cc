// Of ranks that share sequences the simulator captures the first: it computes as much as any, and no other holds more memory.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "core/recipe/recipe.h"
#include "simulator/capture/capture.h"
#include "simulator/cost/op_facts.h"
#include "simulator/cost/operator_table.h"
#include "simulator/memory/memory_simulator.h"
#include "tests/integration/cases.h"

namespace legoai::sim {
namespace {

struct Setting {
  const char* checkpointing;  // "none", "full" or "op"
  v1::ContextParallelBalance balance = v1::BALANCE_HEAD_TAIL;
  v1::DType param = v1::FLOAT32;
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

TEST(ContextParallelCapture, TheFirstRankNeedsAsMuchAsAny) {
  for (const int64_t cp : {2, 4}) {
    for (const Setting& setting : {Setting{"none"}, Setting{"full"}, Setting{"op"}, Setting{"none", v1::BALANCE_NONE},
                                   Setting{"op", v1::BALANCE_NONE}, Setting{"none", v1::BALANCE_HEAD_TAIL, v1::BFLOAT16},
                                   Setting{"op", v1::BALANCE_HEAD_TAIL, v1::BFLOAT16}}) {
      SCOPED_TRACE(testing::Message() << "cp " << cp << ", " << setting.checkpointing << ", balance " << setting.balance);
      v1::Model model = integration::TinyLlama();
      model.set_vocab_size(64);  // shards of one size
      model.set_intermediate_size(64);
      const auto resolved = parallel::ResolvedRecipe::Create(RecipeOf(cp, setting), model, cp);
      ASSERT_TRUE(resolved.ok()) << resolved.status();
      std::vector<double> flops;
      std::vector<int64_t> peaks;
      for (int64_t rank = 0; rank < cp; ++rank) {
        const auto captured = CaptureStep(*resolved, rank);
        ASSERT_TRUE(captured.ok()) << captured.status();
        const auto memory = SimulateMemory(captured->trace, {.kind = v1::CPU, .rounding_bytes = 1, .threads = 1});
        ASSERT_TRUE(memory.ok()) << memory.status();
        flops.push_back(AttentionFlops(captured->trace));
        peaks.push_back(memory->peak_requested_bytes);
      }
      EXPECT_EQ(flops[0], *std::max_element(flops.begin(), flops.end()));
      EXPECT_EQ(flops[0] == *std::min_element(flops.begin(), flops.end()), setting.balance == v1::BALANCE_HEAD_TAIL);
      EXPECT_EQ(peaks[0], *std::max_element(peaks.begin(), peaks.end())) << testing::PrintToString(peaks);
    }
  }
}

}  // namespace
}  // namespace legoai::sim
