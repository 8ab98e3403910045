// The Traces of pipelines and of accumulation, made from few microbatches and few stages, are those of the whole captures: the
// same program, index by index, with the same peaks and the same step time.
#include "simulator/capture/capture_stages.h"

#include <gmock/gmock.h>
#include <google/protobuf/util/message_differencer.h>
#include <gtest/gtest.h>

#include <ostream>
#include <string>

#include "core/hardware/catalog.h"
#include "core/model/catalog.h"
#include "core/recipe/recipe.h"
#include "core/trace/trace_file.h"
#include "core/trace/verify.h"
#include "simulator/capture/capture.h"
#include "simulator/capture/instance_actions.h"
#include "simulator/engine/step_simulation.h"
#include "simulator/memory/memory_simulator.h"
#include "tests/integration/cases.h"

namespace legoai::sim {
namespace {

using ::testing::IsEmpty;

struct Case {
  std::string name = {};
  int64_t shard = 1, tp = 1, pp = 1;
  v1::PipelineSchedule schedule = v1::ONE_F_ONE_B;
  int64_t microbatches = 8, rows = 1, layers = 5;
  bool checkpointing = false, bf16 = false, tied = false, gpt2 = false;
  int64_t replicate = 1;
  v1::ReshardPolicy reshard = v1::RESHARD_DEFAULT;
  int64_t layers_per_stage = 0;  // 0: not said
  int64_t instanced = -1;        // stages that are not wholly captured; -1: all where microbatches repeat
  int64_t zero_stage = 3, prefetch_depth = 1, cp = 1;
  bool gemma2 = false;
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

v1::Model ModelOf(const Case& c) {
  v1::Model model = c.gpt2 ? integration::TinyGpt2() : c.gemma2 ? integration::TinyGemma2() : integration::TinyLlama();
  model.set_num_hidden_layers(c.layers);
  model.set_tie_word_embeddings(c.tied);
  return model;
}

v1::Recipe RecipeOf(const Case& c) {
  v1::Recipe recipe = parallel::DefaultRecipe();
  auto* training = recipe.mutable_training();
  training->set_local_batch_size(c.pp > 1 ? c.microbatches * c.rows : c.rows);
  training->set_global_batch_size(c.microbatches * c.rows * c.shard * c.replicate);
  training->set_seq_len(16);
  training->set_mixed_precision_param(c.bf16 ? v1::BFLOAT16 : v1::FLOAT32);
  auto* parallelism = recipe.mutable_parallelism();
  parallelism->set_data_parallel_replicate_degree(c.replicate);
  parallelism->set_data_parallel_shard_degree(c.shard);
  parallelism->set_tensor_parallel_degree(c.tp);
  parallelism->set_pipeline_parallel_degree(c.pp);
  parallelism->set_pipeline_parallel_schedule(c.schedule);
  parallelism->set_pipeline_parallel_microbatch_size(c.pp > 1 ? c.rows : 1);
  parallelism->set_fsdp_reshard_after_forward(c.reshard);
  parallelism->set_zero_stage(c.zero_stage);
  parallelism->set_fsdp_prefetch_depth(c.prefetch_depth);
  parallelism->set_context_parallel_degree(c.cp);
  if (c.layers_per_stage > 0) parallelism->set_pipeline_parallel_layers_per_stage(c.layers_per_stage);
  recipe.mutable_activation_checkpoint()->set_mode(c.checkpointing ? v1::AC_FULL : v1::AC_NONE);
  return recipe;
}

// After every operator; what dies between two of them may die in another order.
std::vector<int64_t> LiveAfterOperators(const graph::Trace& flat, const MemoryProfile& profile) {
  std::vector<int64_t> live;
  for (size_t i = 0; i < flat.instructions.size(); ++i) {
    if (flat.instructions[i].kind == graph::Instruction::Kind::kOperator) live.push_back(profile.live_bytes[i]);
  }
  return live;
}

void ExpectSameMemory(const graph::Trace& whole, const CapturedStage& stage) {
  const MemoryOptions options{.timeline = true};
  auto left = SimulateMemory(whole, options);
  auto right = stage.instances ? SimulateMemory(*stage.trace, *stage.instances, options) : SimulateMemory(*stage.trace, options);
  ASSERT_TRUE(left.ok() && right.ok()) << left.status() << right.status();
  EXPECT_EQ(left->peak_requested_bytes, right->peak_requested_bytes);
  EXPECT_EQ(left->peak_allocated_bytes, right->peak_allocated_bytes);
  EXPECT_EQ(left->peak_at, right->peak_at);
  ASSERT_EQ(left->live_bytes.size(), right->live_bytes.size());
  EXPECT_EQ(LiveAfterOperators(whole, *left), LiveAfterOperators(whole, *right));
  EXPECT_EQ(left->peak_position, right->peak_position);
}

double StepSeconds(const std::vector<StageTrace>& stages, int64_t world) {
  auto cluster = MakeCluster(*FindDevice("h100-sxm-80"), world, 1);
  EXPECT_TRUE(cluster.ok()) << cluster.status();
  auto compute = RooflineModel::Create(cluster->device());
  auto step = SimulateStep(stages, *cluster, **compute, CollectiveCostModel(*cluster));
  EXPECT_TRUE(step.ok()) << step.status();
  if (!step.ok()) return -1;
  const auto least = LeastStepSeconds(stages, **compute, CollectiveCostModel(*cluster));
  EXPECT_TRUE(least.ok()) << least.status();
  EXPECT_LE(*least, step->step_seconds * (1 + 1e-9));
  EXPECT_GE(*least, 0.01 * step->step_seconds) << "a bound, not nothing";
  return step->step_seconds;
}

// How many of the stages were not wholly captured; -1 after a failure.
int64_t ExpectTracesOfWholeCaptures(const parallel::ResolvedRecipe& resolved) {
  auto stages = CaptureStages(resolved);
  EXPECT_TRUE(stages.ok()) << stages.status();
  if (!stages.ok()) return -1;
  EXPECT_EQ(static_cast<int64_t>(stages->size()), resolved.mesh().pp);
  std::vector<graph::Trace> whole(stages->size());
  std::vector<StageTrace> expected, actual;
  int64_t instanced = 0;
  for (int64_t s = 0; s < resolved.mesh().pp; ++s) {
    SCOPED_TRACE(testing::Message() << "stage " << s);
    const CapturedStage& stage = (*stages)[s];
    EXPECT_EQ(stage.rank, resolved.mesh().FirstRankOfStage(s));
    auto captured = CaptureStep(resolved, stage.rank);
    EXPECT_TRUE(captured.ok()) << captured.status();
    if (!captured.ok()) return -1;
    whole[s] = std::move(captured->trace);
    const graph::Trace flat = stage.Flat();
    EXPECT_THAT(graph::Differences(whole[s], flat, 5), IsEmpty());
    // Not only the same program: the same numbers.
    EXPECT_TRUE(google::protobuf::util::MessageDifferencer::Equals(graph::ToProto(whole[s]), graph::ToProto(flat)));
    ExpectSameMemory(whole[s], stage);
    expected.push_back({&whole[s], s, stage.rank});
    actual.push_back({stage.trace.get(), s, stage.rank, stage.instances ? &*stage.instances : nullptr});
    instanced += stage.instances.has_value();
  }
  EXPECT_EQ(StepSeconds(actual, resolved.mesh().world()), StepSeconds(expected, resolved.mesh().world()));
  return instanced;
}

class CaptureStagesTest : public ::testing::TestWithParam<Case> {};

TEST_P(CaptureStagesTest, GivesTheTracesOfWholeCaptures) {
  const Case& c = GetParam();
  const v1::Model model = ModelOf(c);
  const v1::Recipe recipe = RecipeOf(c);
  auto resolved = parallel::ResolvedRecipe::Create(recipe, model, c.replicate * c.shard * c.cp * c.tp * c.pp);
  ASSERT_TRUE(resolved.ok()) << resolved.status();
  ASSERT_EQ(resolved->microbatches(), c.microbatches);
  // All stages where microbatches repeat; where not, those in the middle, which are alike.
  const bool many = c.microbatches > CapturedMicrobatches(resolved->MakeSchedule(), 0);
  EXPECT_EQ(ExpectTracesOfWholeCaptures(*resolved), c.instanced >= 0 ? c.instanced : many ? c.pp : (c.pp > 3 ? c.pp - 2 : 0));
}

TEST(CaptureStagesOfAReleasedModel, GivesTheTracesOfWholeCaptures) {
  v1::Recipe recipe =
      RecipeOf({.shard = 4, .tp = 2, .pp = 4, .microbatches = 12, .rows = 2, .checkpointing = true, .bf16 = true});
  recipe.mutable_training()->set_seq_len(8192);
  const v1::Model model = *model::ResolveModel("llama3-8b");
  auto resolved = parallel::ResolvedRecipe::Create(recipe, model, 32);
  ASSERT_TRUE(resolved.ok()) << resolved.status();
  EXPECT_EQ(ExpectTracesOfWholeCaptures(*resolved), 4);
}

TEST(CaptureStagesOfParityCases, GivesTheTracesOfWholeCaptures) {
  int64_t instanced = 0;
  for (const integration::Case& c : integration::ParityCases()) {
    SCOPED_TRACE(c.name);
    auto resolved = parallel::ResolvedRecipe::Create(c.recipe, c.model, c.world_size);
    ASSERT_TRUE(resolved.ok()) << resolved.status();
    instanced += ExpectTracesOfWholeCaptures(*resolved);
  }
  EXPECT_GT(instanced, 0);
}

std::vector<Case> Cases() {
  return {
      {.name = "pp2", .pp = 2},
      {.name = "pp2_five", .pp = 2, .microbatches = 5},
      {.name = "pp3_six", .pp = 3, .microbatches = 6},
      {.name = "pp2_many", .pp = 2, .microbatches = 19, .rows = 2},
      {.name = "pp2_few", .pp = 2, .microbatches = 4},
      {.name = "pp2_gpipe", .pp = 2, .schedule = v1::GPIPE, .microbatches = 9},
      {.name = "pp4", .pp = 4, .layers = 8},
      {.name = "pp4_few", .pp = 4, .microbatches = 4, .layers = 8},
      {.name = "pp4_one", .pp = 4, .microbatches = 1, .layers = 8},
      {.name = "pp4_gpipe", .pp = 4, .schedule = v1::GPIPE, .layers = 8},
      {.name = "pp4_windows_by_turns", .pp = 4, .layers = 4, .gemma2 = true},
      {.name = "pp4_windows_in_each", .pp = 4, .layers = 8, .gemma2 = true},
      {.name = "pp5_uneven", .pp = 5, .microbatches = 10, .layers = 13},
      {.name = "pp8_deep", .pp = 8, .microbatches = 16, .layers = 16},
      {.name = "pp4_ac", .pp = 4, .layers = 8, .checkpointing = true},
      {.name = "fsdp2_pp4", .shard = 2, .pp = 4, .layers = 8},
      {.name = "fsdp3_pp2_bf16", .shard = 3, .pp = 2, .bf16 = true},
      {.name = "pp4_bf16", .pp = 4, .layers = 8, .bf16 = true},
      {.name = "tp2_pp4", .tp = 2, .pp = 4, .layers = 8},
      {.name = "fsdp2_tp2_pp4_ac_bf16",
       .shard = 2,
       .tp = 2,
       .pp = 4,
       .microbatches = 11,
       .layers = 8,
       .checkpointing = true,
       .bf16 = true},
      {.name = "hsdp2x2_pp2", .shard = 2, .pp = 2, .replicate = 2},
      {.name = "accumulate", .microbatches = 9},
      {.name = "accumulate_six", .shard = 2, .microbatches = 6},
      {.name = "accumulate_five", .shard = 2, .microbatches = 5},
      {.name = "accumulate_ac_bf16", .microbatches = 7, .checkpointing = true, .bf16 = true},
      {.name = "accumulate_fsdp2", .shard = 2, .microbatches = 9},
      {.name = "accumulate_fsdp3_bf16", .shard = 3, .microbatches = 12, .rows = 2, .bf16 = true},
      {.name = "accumulate_fsdp2_kept", .shard = 2, .microbatches = 9, .reshard = v1::RESHARD_NEVER},
      {.name = "accumulate_hsdp2x2", .shard = 2, .microbatches = 8, .replicate = 2},
      {.name = "accumulate_zero1", .shard = 2, .microbatches = 8, .zero_stage = 1},
      {.name = "accumulate_zero2_bf16", .shard = 2, .microbatches = 8, .bf16 = true, .zero_stage = 2, .prefetch_depth = 2},
      {.name = "accumulate_cp2", .microbatches = 8, .cp = 2},
      {.name = "pp4_cp2", .pp = 4, .layers = 8, .cp = 2},
      {.name = "fsdp2_pp2_zbv_tied_zero2",
       .shard = 2,
       .pp = 2,
       .schedule = v1::ZBV_ZERO_BUBBLE,
       .tied = true,
       .zero_stage = 2},
      {.name = "accumulate_ddp2", .microbatches = 8, .bf16 = true, .replicate = 2},
      {.name = "accumulate_tp2", .tp = 2, .microbatches = 8},
      {.name = "accumulate_tied", .shard = 2, .microbatches = 8, .tied = true},
      {.name = "accumulate_gpt2", .shard = 2, .microbatches = 8, .tied = true, .gpt2 = true},
      {.name = "accumulate_gpt2_ac", .microbatches = 8, .checkpointing = true, .tied = true, .gpt2 = true},
      {.name = "pp2_interleaved", .pp = 2, .schedule = v1::INTERLEAVED_1F1B},
      {.name = "pp2_interleaved_odd", .pp = 2, .schedule = v1::INTERLEAVED_1F1B, .microbatches = 11, .layers = 7},
      {.name = "pp3_interleaved_few", .pp = 3, .schedule = v1::INTERLEAVED_1F1B, .microbatches = 3, .layers = 6},
      {.name = "pp4_interleaved_deep",
       .pp = 4,
       .schedule = v1::INTERLEAVED_1F1B,
       .microbatches = 9,
       .layers = 16,
       .layers_per_stage = 1},
      {.name = "pp2_looped", .pp = 2, .schedule = v1::LOOPED_BFS},
      {.name = "pp4_looped_uneven_ac", .pp = 4, .schedule = v1::LOOPED_BFS, .layers = 11, .checkpointing = true},
      {.name = "fsdp2_tp2_pp4_interleaved_bf16",
       .shard = 2,
       .tp = 2,
       .pp = 4,
       .schedule = v1::INTERLEAVED_1F1B,
       .layers = 8,
       .bf16 = true},
      {.name = "hsdp2x2_pp2_looped", .shard = 2, .pp = 2, .schedule = v1::LOOPED_BFS, .replicate = 2},
      {.name = "pp4_zb_h1",
       .pp = 4,
       .schedule = v1::INTERLEAVED_ZERO_BUBBLE,
       .microbatches = 9,
       .layers = 8,
       .layers_per_stage = 2},
      {.name = "pp2_interleaved_zb_ac", .pp = 2, .schedule = v1::INTERLEAVED_ZERO_BUBBLE, .checkpointing = true},
      {.name = "fsdp2_tp2_pp4_interleaved_zb_bf16",
       .shard = 2,
       .tp = 2,
       .pp = 4,
       .schedule = v1::INTERLEAVED_ZERO_BUBBLE,
       .layers = 8,
       .bf16 = true},
      {.name = "pp4_tied", .pp = 4, .layers = 8, .tied = true},
      // With dropout: its sites differ between the stages in the middle.
      {.name = "pp4_gpt2", .pp = 4, .layers = 8, .gpt2 = true},
      {.name = "pp2_zbv", .pp = 2, .schedule = v1::ZBV_ZERO_BUBBLE},
      {.name = "pp4_zbv_ac", .pp = 4, .schedule = v1::ZBV_ZERO_BUBBLE, .microbatches = 11, .layers = 9, .checkpointing = true},
      {.name = "pp4_zbv_few", .pp = 4, .schedule = v1::ZBV_ZERO_BUBBLE, .microbatches = 3, .layers = 8},
      {.name = "pp5_zbv", .pp = 5, .schedule = v1::ZBV_ZERO_BUBBLE, .microbatches = 12, .layers = 10},
      {.name = "fsdp2_tp2_pp4_dualpipev",
       .shard = 2,
       .tp = 2,
       .pp = 4,
       .schedule = v1::DUALPIPE_V,
       .microbatches = 12,
       .layers = 8,
       .checkpointing = true},
      {.name = "fsdp2_tp2_pp2_zbv_tied_bf16",
       .shard = 2,
       .tp = 2,
       .pp = 2,
       .schedule = v1::ZBV_ZERO_BUBBLE,
       .bf16 = true,
       .tied = true},
      {.name = "pp3_zbv_gpt2", .pp = 3, .schedule = v1::ZBV_ZERO_BUBBLE, .layers = 6, .tied = true, .gpt2 = true},
      {.name = "ddp2_pp2_dualpipev_tied", .pp = 2, .schedule = v1::DUALPIPE_V, .microbatches = 17, .tied = true, .replicate = 2},
      {.name = "fsdp2_pp3_dualpipev_bf16",
       .shard = 2,
       .pp = 3,
       .schedule = v1::DUALPIPE_V,
       .microbatches = 19,
       .layers = 7,
       .checkpointing = true,
       .bf16 = true},
      {.name = "pp4_gpt2_interleaved", .pp = 4, .schedule = v1::INTERLEAVED_1F1B, .layers = 8, .gpt2 = true},
      {.name = "pp4_gpt2_few_ac", .pp = 4, .microbatches = 4, .layers = 8, .checkpointing = true, .gpt2 = true},
  };
}

INSTANTIATE_TEST_SUITE_P(All, CaptureStagesTest, ::testing::ValuesIn(Cases()), [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace legoai::sim
