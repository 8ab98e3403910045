#include "simulator/estimate/estimate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/hardware/catalog.h"
#include "core/model/catalog.h"
#include "core/operators/op_facts.h"
#include "core/operators/operator_table.h"
#include "core/recipe/recipe.h"
#include "core/recipe/recomputation.h"
#include "core/recipe/resolved_recipe.h"
#include "core/trace/effects.h"
#include "simulator/capture/capture_stages.h"

namespace legoai::sim {
namespace {

constexpr int64_t kSeqLen = 64;

v1::SimRequest Request(const char* cluster, int64_t shard, int64_t tp, int64_t pp, v1::ActivationCheckpointMode mode) {
  v1::SimRequest request;
  *request.mutable_model() = model::Llama(
      {.vocab = 128, .hidden = 32, .intermediate = 64, .layers = 4, .heads = 4, .kv_heads = 2, .positions = kSeqLen});
  *request.mutable_cluster() = *ParseCluster(cluster);
  v1::Recipe* recipe = request.mutable_recipe();
  *recipe = parallel::DefaultRecipe();
  recipe->mutable_training()->set_local_batch_size(4);
  recipe->mutable_training()->set_seq_len(kSeqLen);
  recipe->mutable_parallelism()->set_data_parallel_shard_degree(shard);
  recipe->mutable_parallelism()->set_tensor_parallel_degree(tp);
  recipe->mutable_parallelism()->set_pipeline_parallel_degree(pp);
  recipe->mutable_activation_checkpoint()->set_mode(mode);
  request.set_cost_mode(v1::COST_ROOFLINE);
  return request;
}

// MFU and HFU count by one convention: they differ by what is recomputed, in every layout. Of a block's forward full
// checkpointing repeats all but, at most, its last product, whose result backward does not need.
TEST(EstimateRecipe, HfuIsMfuAndWhatIsRecomputed) {
  struct Layout {
    const char* cluster;
    int64_t shard, tp, pp, cp = 1;
    v1::ContextParallelRotation rotation = v1::ROTATE_BY_ALL_GATHER;
    v1::ContextParallelBalance balance = v1::BALANCE_HEAD_TAIL;
  };
  for (const Layout& l : {Layout{"h100-sxm-80:1x1", 1, 1, 1},
                          {"h100-sxm-80:4x1", 4, 1, 1},
                          {"h100-sxm-80:2x1", 1, 2, 1},
                          {"h100-sxm-80:2x1", 1, 1, 2},
                          {"cpu:8x1", 2, 2, 2},
                          {"h100-sxm-80:2x1", 1, 1, 1, 2},
                          {"h100-sxm-80:4x1", 1, 1, 1, 4, v1::ROTATE_BY_RING},
                          {"h100-sxm-80:4x1", 1, 1, 1, 4, v1::ROTATE_BY_RING, v1::BALANCE_NONE},
                          {"h100-sxm-80:8x1", 1, 2, 2, 2, v1::ROTATE_BY_RING}}) {
    SCOPED_TRACE(testing::Message() << l.cluster << " tp " << l.tp << " pp " << l.pp << " cp " << l.cp << " " << l.rotation);
    const auto request = [&l](v1::ActivationCheckpointMode mode) {
      v1::SimRequest asked = Request(l.cluster, l.shard, l.tp, l.pp, mode);
      v1::Parallelism& parallelism = *asked.mutable_recipe()->mutable_parallelism();
      parallelism.set_context_parallel_degree(l.cp);
      parallelism.set_context_parallel_rotate_method(l.rotation);
      parallelism.set_context_parallel_load_balancer(l.balance);
      return asked;
    };
    const auto plain = EstimateRecipe(request(v1::AC_NONE));
    ASSERT_TRUE(plain.ok()) << plain.status();
    EXPECT_GT(plain->mfu(), 0);
    EXPECT_EQ(plain->hfu(), plain->mfu());
    const auto full = EstimateRecipe(request(v1::AC_FULL));
    ASSERT_TRUE(full.ok()) << full.status();
    constexpr double kHidden = 32, kInner = 64, kKeys = 16, kLayers = 4;
    const double last = 2 * kHidden * kInner;
    const double block = 2 * (2 * kHidden * kHidden + 2 * kHidden * kKeys) + 3 * last + 4 * kHidden * kSeqLen;
    const double recomputed = (full->hfu() / full->mfu() - 1) * full->model_flops_per_token();
    EXPECT_LE(recomputed, kLayers * block * (1 + 1e-9));
    EXPECT_GE(recomputed, kLayers * (block - last) * (1 - 1e-9));
  }
}

// A program is the same step: it takes the same memory, and on a CPU none of the time that an eager step takes beside its
// operators.
TEST(EstimateRecipe, AProgramSparesTheCpusEagerDispatch) {
  for (const char* cluster : {"cpu:2x1", "h100-sxm-80:2x1"}) {
    v1::SimRequest request = Request(cluster, 2, 1, 1, v1::AC_NONE);
    const auto eager = EstimateRecipe(request);
    request.mutable_recipe()->mutable_compile()->set_enable(true);
    const auto compiled = EstimateRecipe(request);
    ASSERT_TRUE(eager.ok() && compiled.ok()) << eager.status() << compiled.status();
    EXPECT_EQ(compiled->stages(0).peak_allocated_bytes(), eager->stages(0).peak_allocated_bytes());
    EXPECT_EQ(compiled->operators(), eager->operators());
    if (request.cluster().device().kind() == v1::CPU) {
      EXPECT_GT(eager->breakdown().launch_seconds(), 0);
      EXPECT_LT(compiled->step_time_seconds(), eager->step_time_seconds());
      EXPECT_EQ(compiled->breakdown().launch_seconds(), 0);
    } else {
      EXPECT_EQ(compiled->step_time_seconds(), eager->step_time_seconds());
    }
  }
}

// Of sequences long enough attention to the keys and values of one rank takes longer than those of the next take to come.
TEST(EstimateRecipe, ARingHidesWhatGathersExpose) {
  v1::SimRequest request = Request("h100-sxm-80:4x1", 1, 1, 1, v1::AC_NONE);
  *request.mutable_model() = model::Llama(
      {.vocab = 128, .hidden = 1024, .intermediate = 2048, .layers = 2, .heads = 8, .kv_heads = 8, .positions = 32768});
  request.mutable_recipe()->mutable_training()->set_local_batch_size(1);
  request.mutable_recipe()->mutable_training()->set_seq_len(32768);
  v1::Parallelism& parallelism = *request.mutable_recipe()->mutable_parallelism();
  parallelism.set_context_parallel_degree(4);
  const auto gathered = EstimateRecipe(request);
  parallelism.set_context_parallel_rotate_method(v1::ROTATE_BY_RING);
  const auto ring = EstimateRecipe(request);
  ASSERT_TRUE(gathered.ok() && ring.ok()) << gathered.status() << ring.status();
  EXPECT_LT(ring->breakdown().exposed_communication_seconds(), 0.6 * gathered->breakdown().exposed_communication_seconds());
  EXPECT_LT(ring->step_time_seconds(), gathered->step_time_seconds());
  EXPECT_LT(ring->stages(0).peak_requested_bytes(), gathered->stages(0).peak_requested_bytes());
}

// By the captured step itself: FLOPs that all of its ranks do once more.
double RecomputedFlops(const parallel::ResolvedRecipe& resolved) {
  const auto stages = CaptureStages(resolved);
  EXPECT_TRUE(stages.ok()) << stages.status();
  double flops = 0;
  for (const CapturedStage& stage : *stages) {
    const graph::Trace trace = stage.Flat();
    const auto rows = ResolveOperators(trace);
    EXPECT_TRUE(rows.ok()) << rows.status();
    for (const graph::Instruction& instruction : trace.instructions) {
      const bool counts =
          instruction.kind == graph::Instruction::Kind::kOperator && instruction.phase == graph::Phase::kRecompute;
      if (!counts) continue;
      flops += ConventionalFlops(graph::InstructionView(trace, instruction), *(*rows)[instruction.operator_index],
                                 resolved.seq_len());
    }
  }
  return flops * static_cast<double>(resolved.mesh().world() / resolved.mesh().pp);
}

v1::Model TinyGpt2(double dropout) {
  v1::Model model = model::Llama(
      {.vocab = 128, .hidden = 32, .intermediate = 64, .layers = 4, .heads = 4, .kv_heads = 4, .positions = kSeqLen});
  model.set_architecture(v1::GPT2);
  model.set_attn_pdrop(dropout);
  model.set_resid_pdrop(dropout);
  model.set_embd_pdrop(dropout);
  model.set_tie_word_embeddings(true);
  return model;
}

v1::Model TinyGptOfSides() {
  v1::Model model = TinyGpt2(/*dropout=*/0);
  model.set_num_key_value_heads(2);
  model.set_parallel_block(true);
  return model;
}

v1::Model TinyGemma2() {
  v1::Model model = model::Llama(
      {.vocab = 128, .hidden = 32, .intermediate = 64, .layers = 4, .heads = 4, .kv_heads = 2, .positions = kSeqLen});
  model.set_architecture(v1::GEMMA2);
  model.set_sliding_window(kSeqLen / 2);
  model.set_sliding_window_alternates(true);
  model.set_attn_logit_softcapping(50);
  model.set_final_logit_softcapping(30);
  return model;
}

TEST(EstimateRecipe, WhatIsRecomputedIsWhatTheStepRecomputes) {
  struct Way {
    const char *name, *option, *policy, *forced;
  };
  const std::vector<std::pair<const char*, v1::Model>> models = {
      {"Llama", *Request("cpu:8x1", 1, 1, 1, v1::AC_NONE).mutable_model()},
      {"GPT-2", TinyGpt2(0)},
      {"GPT-2 with dropout", TinyGpt2(0.1)},
      {"GPT of sides", TinyGptOfSides()},
      {"Gemma 2", TinyGemma2()}};
  for (const auto& [name, model] : models) {
    const bool gpt2 = model.architecture() == v1::GPT2;
    for (const int64_t tp : {1, 2}) {
      for (const Way& way : {Way{"full", "", "", ""}, {"second", "2", "", ""}, {"op", "op", "", ""},
                             {"forced", "op", "", gpt2 ? "attn.k_proj" : "self_attn.k_proj"},
                             {"policy", "policy", "*attn* aten::mm|aten::addmm even; * aten::bmm 1", ""}}) {
        SCOPED_TRACE(testing::Message() << name << " tp " << tp << " " << way.name);
        v1::SimRequest request = Request("cpu:8x1", tp == 1 ? 2 : 1, tp, tp == 1 ? 1 : 2, v1::AC_SELECTIVE);
        v1::ActivationCheckpoint& section = *request.mutable_recipe()->mutable_activation_checkpoint();
        section.set_selective_ac_option(way.option);
        section.set_selective_ac_policy(way.policy);
        if (*way.forced != 0) section.add_per_op_sac_force_recompute_mm_shapes_by_fqns(way.forced);
        if (*way.option == 0) section = {}, section.set_mode(v1::AC_FULL);
        const auto resolved = parallel::ResolvedRecipe::Create(request.recipe(), model, tp == 1 ? 2 : 4);
        ASSERT_TRUE(resolved.ok()) << resolved.status();
        const double recomputed = RecomputedFlops(*resolved);
        EXPECT_GT(recomputed, 0);
        EXPECT_DOUBLE_EQ(parallel::RecomputedFlopsPerToken(*resolved) * static_cast<double>(resolved->tokens_per_step()),
                         recomputed);
      }
    }
  }
}

// On real Traces: the parts of the stages and of the critical path are the step, costs follow from its time, and planning, which
// asks for no details, gets none.
TEST(EstimateRecipe, DetailsAddUpToTheStep) {
  v1::SimRequest request = Request("h100-sxm-80:8x1", 2, 2, 2, v1::AC_FULL);
  request.mutable_cluster()->set_price_per_gpu_hour(2);
  const auto plain = EstimateRecipe(request);
  ASSERT_TRUE(plain.ok()) << plain.status();
  EXPECT_EQ(plain->largest_operators_size() + plain->largest_modules_size() + plain->critical_path_size(), 0);
  request.set_details(true);
  const auto detailed = EstimateRecipe(request);
  ASSERT_TRUE(detailed.ok()) << detailed.status();
  const double step = detailed->step_time_seconds();
  EXPECT_EQ(step, plain->step_time_seconds());
  ASSERT_EQ(detailed->stages_size(), 2);
  for (const auto& stage : detailed->stages()) {
    const auto& parts = stage.breakdown();
    EXPECT_NEAR(parts.compute_seconds() + parts.exposed_communication_seconds() + parts.bubble_seconds() +
                    parts.launch_seconds() + parts.optimizer_seconds(),
                step, 1e-9 * step);
  }
  double path = 0;
  for (const auto& part : detailed->critical_path()) path += part.seconds();
  EXPECT_NEAR(path, step, 1e-9 * step);
  EXPECT_EQ(detailed->largest_operators_size(), 10);
  bool recomputes = false;
  for (const auto& op : detailed->largest_operators()) {
    EXPECT_FALSE(op.name().empty());
    EXPECT_FALSE(op.shapes().empty()) << op.name();
    recomputes = recomputes || op.phase() == "recompute";
  }
  EXPECT_TRUE(recomputes) << "forward again";
  const auto modules = detailed->largest_modules();
  EXPECT_TRUE(std::any_of(
      modules.begin(), modules.end(),
      [](const auto& module) { return module.module().find("layers.*.") != std::string::npos && module.modules() == 2; }))
      << "two of the four layers are this stage's\n"
      << detailed->DebugString();
  const auto& cost = detailed->running_cost();
  const double tokens = kSeqLen * static_cast<double>(detailed->recipe().training().global_batch_size());
  EXPECT_NEAR(cost.tokens_per_day(), tokens / step * 86400, 1e-6 * cost.tokens_per_day());
  EXPECT_DOUBLE_EQ(cost.price_per_billion_tokens(), 2 * cost.gpu_hours_per_billion_tokens());
}

TEST(EstimateRecipe, ThereIsNoMfuWithoutAPeakThatHolds) {
  v1::SimRequest request = Request("h100-sxm-80:1x1", 1, 1, 1, v1::AC_FULL);
  const auto estimate = EstimateRecipe(request);
  ASSERT_TRUE(estimate.ok()) << estimate.status();
  EXPECT_EQ(estimate->mfu_fault(), "");
  v1::PeakFlops* peak = nullptr;  // of the recipe's precision
  for (v1::PeakFlops& one : *request.mutable_cluster()->mutable_device()->mutable_peak_flops()) {
    if (one.dtype() == estimate->recipe().training().mixed_precision_param()) peak = &one;
  }
  ASSERT_NE(peak, nullptr);
  // As a wrong file has it: the step's time stays, and is less than the peak allows.
  const double smaller = estimate->mfu();
  peak->set_flops_per_second(peak->flops_per_second() * smaller);
  for (v1::Efficiency& one : *request.mutable_cluster()->mutable_device()->mutable_efficiencies()) {
    if (one.op_class() == "matmul" || one.op_class() == "attention") one.set_fraction(one.fraction() / smaller);
  }
  const auto above = EstimateRecipe(request);
  ASSERT_TRUE(above.ok()) << above.status();
  EXPECT_EQ(above->mfu(), 0);
  EXPECT_EQ(above->hfu(), 0);
  EXPECT_NE(above->mfu_fault().find("more than this peak"), std::string::npos) << above->mfu_fault();
}

// Of the stage that needs most, wherever it lies: a large vocabulary makes it the last one, which holds the logits; otherwise it
// is the first one, which holds the activations of more microbatches.
TEST(EstimateRecipe, FitsToTheByteIsDecidedByTheFullestStage) {
  struct Layout {
    int64_t pp, vocabulary, fullest;
  };
  constexpr int64_t kReserve = 123'457;
  for (const Layout& l : {Layout{1, 128, 0}, {2, 16, 0}, {2, 4096, 1}}) {
    SCOPED_TRACE(testing::Message() << "pp " << l.pp << " vocabulary " << l.vocabulary);
    v1::SimRequest request = Request(l.pp == 1 ? "h100-sxm-80:1x1" : "h100-sxm-80:2x1", 1, 1, l.pp, v1::AC_NONE);
    request.mutable_model()->set_vocab_size(l.vocabulary);
    v1::Device& device = *request.mutable_cluster()->mutable_device();
    device.set_reserve_bytes(kReserve);
    const auto roomy = EstimateRecipe(request);
    ASSERT_TRUE(roomy.ok()) << roomy.status();
    EXPECT_TRUE(roomy->fits());
    ASSERT_EQ(roomy->stages_size(), l.pp);
    const int64_t largest = roomy->stages(l.fullest).peak_allocated_bytes();
    for (const auto& stage : roomy->stages()) {
      EXPECT_TRUE(stage.stage() == l.fullest || stage.peak_allocated_bytes() < largest) << stage.DebugString();
    }
    device.set_memory_bytes(largest + kReserve);
    EXPECT_TRUE(EstimateRecipe(request)->fits());
    device.set_memory_bytes(largest + kReserve - 1);
    EXPECT_FALSE(EstimateRecipe(request)->fits());
  }
}

// What asynchronous tensor parallel holds beside the caching allocator: two slots of 16 MiB, and a granule.
TEST(EstimateRecipe, SymmetricMemoryIsNotForTensors) {
  const auto reserve_of = [](const char* cluster, int64_t tp, bool async) {
    v1::SimRequest request = Request(cluster, 1, tp, 1, v1::AC_NONE);
    request.mutable_recipe()->mutable_compile()->set_enable(true);
    request.mutable_recipe()->mutable_parallelism()->set_enable_async_tensor_parallel(async);
    const auto estimate = EstimateRecipe(request);
    EXPECT_TRUE(estimate.ok()) << estimate.status();
    return estimate.ok() ? estimate->stages(0).reserve_bytes() - request.cluster().device().reserve_bytes() : -1;
  };
  EXPECT_EQ(reserve_of("h100-sxm-80:2x1", 2, true), int64_t{34} << 20);
  EXPECT_EQ(reserve_of("h100-sxm-80:2x1", 2, false), 0);
  EXPECT_EQ(reserve_of("h100-sxm-80:1x2", 2, true), 0) << "ranks of two hosts";
  EXPECT_EQ(reserve_of("cpu:2x1", 2, true), 0);
}

const v1::StageEstimate* StageOf(const v1::Estimate& estimate, int64_t number) {
  for (const auto& stage : estimate.stages()) {
    if (stage.stage() == number) return &stage;
  }
  return nullptr;
}

// Where the time of what does not fit is only wanted if it is short, it is told where the step might be shorter. If not, one
// stage that does not fit may stand for all, with the memory that it has in the whole.
TEST(EstimateRecipe, TellsNoTimeOfWhatFitsNowhereAndIsSlow) {
  for (const int64_t pp : {1, 2, 4}) {
    SCOPED_TRACE(testing::Message() << "pp " << pp);
    v1::SimRequest request = Request(absl::StrCat("h100-sxm-80:", 2 * pp, "x1").c_str(), 1, 2, pp, v1::AC_FULL);
    request.mutable_recipe()->mutable_parallelism()->set_pipeline_parallel_microbatch_size(1);
    const auto fits = EstimateRecipe(request);
    ASSERT_TRUE(fits.ok()) << fits.status();
    const double seconds = fits->step_time_seconds();
    request.set_unfit_time_below_seconds(1e-9 * seconds);
    EXPECT_EQ(EstimateRecipe(request)->step_time_seconds(), seconds) << "it fits";
    EXPECT_EQ(EstimateRecipe(request)->stages_size(), pp);
    for (const auto& least : fits->stages()) {  // of those that do not fit
      v1::SimRequest tight = request;
      tight.mutable_cluster()->mutable_device()->set_memory_bytes(least.peak_allocated_bytes() + least.reserve_bytes() - 1);
      const auto slow = EstimateRecipe(tight);
      ASSERT_TRUE(slow.ok()) << slow.status();
      EXPECT_FALSE(slow->fits());
      EXPECT_EQ(slow->step_time_seconds(), 0);
      const bool whole = slow->stages_size() == pp;
      EXPECT_TRUE(whole || slow->stages_size() == 1) << slow->stages_size();
      for (const auto& stage : slow->stages()) {
        EXPECT_EQ(stage.peak_allocated_bytes(), StageOf(*fits, stage.stage())->peak_allocated_bytes());
        EXPECT_EQ(stage.peak_at(), StageOf(*fits, stage.stage())->peak_at());
        EXPECT_TRUE(whole || stage.peak_allocated_bytes() + stage.reserve_bytes() > stage.capacity_bytes());
      }
      tight.set_unfit_time_below_seconds(1.001 * seconds);
      const auto wanted = EstimateRecipe(tight);
      EXPECT_EQ(wanted->step_time_seconds(), seconds) << "the bound is no more than the time";
      EXPECT_EQ(wanted->stages_size(), pp);
      tight.clear_unfit_time_below_seconds();
      EXPECT_EQ(EstimateRecipe(tight)->step_time_seconds(), seconds);
      EXPECT_EQ(EstimateRecipe(tight)->stages_size(), pp);
    }
    // Where no stage fits, one is enough.
    request.mutable_cluster()->mutable_device()->set_memory_bytes(fits->stages(0).reserve_bytes() + 1);
    EXPECT_EQ(EstimateRecipe(request)->stages_size(), 1);
  }
}

// Every storage takes whole blocks of the device.
TEST(EstimateRecipe, WhatIsAllocatedIsRoundedAsTheDeviceDoes) {
  v1::SimRequest request = Request("h100-sxm-80:1x1", 1, 1, 1, v1::AC_NONE);
  v1::Device& device = *request.mutable_cluster()->mutable_device();
  ASSERT_EQ(device.allocation_rounding_bytes(), 512);
  const auto stage_with = [&](int64_t rounding_bytes) {
    device.set_allocation_rounding_bytes(rounding_bytes);
    return EstimateRecipe(request)->stages(0);
  };
  const v1::StageEstimate exact = stage_with(1), rounded = stage_with(512);
  EXPECT_EQ(exact.peak_allocated_bytes(), exact.peak_requested_bytes());
  EXPECT_EQ(rounded.peak_requested_bytes(), exact.peak_requested_bytes());
  EXPECT_EQ(rounded.peak_allocated_bytes() % 512, 0);
  EXPECT_GT(rounded.peak_allocated_bytes(), rounded.peak_requested_bytes() + 512) << "not only the sum is rounded";
}

}  // namespace
}  // namespace legoai::sim
