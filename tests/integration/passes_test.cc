// The passes of core/trace/passes on real steps: the captured step of each rank, rewritten, run with Gloo as a trainer runs
// it, trains as the eager trainer does without [compile], three steps in a row: bit by bit, but where products are cut, whose
// kernels may sum a row otherwise. Every pass is checked on the way.
#include "core/trace/passes/pipeline.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/model/catalog.h"
#include "core/recipe/recipe.h"
#include "proto/enum_text.h"
#include "simulator/capture/capture.h"
#include "tests/integration/cases.h"
#include "tests/integration/train_in_processes.h"
#include "worker/comm/step_timeline.h"
#include "worker/graph/fake/testing/capture_recorder.h"
#include "worker/train/step_breakdown.h"
#include "worker/train/step_program.h"

namespace legoai::integration {
namespace {

using sim::testing::SameBits;

struct PassCase {
  Case eager;
  v1::CompileSection compile;
  bool async = false;  // tensor parallel
};

v1::CompileSection Compiled(v1::FsdpBucketing bucketing, bool reorder,
                            const std::vector<std::vector<std::string>>& buckets = {}) {
  v1::CompileSection compile;
  compile.set_enable(true);
  compile.set_fsdp_bucketing(bucketing);
  compile.set_fsdp_reorder(reorder);
  for (const auto& bucket : buckets) {
    v1::ModelPart* const part = compile.add_fsdp_buckets();
    for (const std::string& module : bucket) part->add_modules(module);
  }
  return compile;
}

Case Fsdp2(const std::string& name, const v1::Model& model) {
  Case made{name, model, parallel::DefaultRecipe(), 2, {}};
  made.recipe.mutable_training()->set_seed(17);
  made.recipe.mutable_training()->set_max_norm(0.5);  // below the gradients' norms, so that they are clipped
  made.recipe.mutable_parallelism()->set_data_parallel_shard_degree(2);
  made.recipe.mutable_training()->set_seq_len(16);
  made.recipe.mutable_training()->set_local_batch_size(2);
  made.recipe.mutable_training()->set_mixed_precision_param(v1::FLOAT32);
  return made;
}

std::vector<PassCase> PassCases() {
  std::vector<PassCase> cases;
  cases.push_back({Fsdp2("vanilla", TinyLlama()), Compiled(v1::BUCKET_NOTHING, false)});
  cases.push_back({Fsdp2("reorder", TinyLlama()), Compiled(v1::BUCKET_NOTHING, true)});
  cases.push_back({Fsdp2("bucket", TinyLlama()), Compiled(v1::BUCKET_BY_MODULES, false, {{"layers.*"}, {"norm", "output"}})});
  cases.push_back({Fsdp2("bucket_and_reorder", TinyLlama()), Compiled(v1::BUCKET_BY_MODULES, true, {{"layers.*"}})});
  Case bf16 = Fsdp2("parts_of_layers_in_bf16_accumulated", TinyLlama());
  bf16.recipe.mutable_training()->set_mixed_precision_param(v1::BFLOAT16);
  bf16.recipe.mutable_training()->set_global_batch_size(8);
  cases.push_back({bf16, Compiled(v1::BUCKET_BY_MODULES, true,
                                  {{"tok_embeddings", "layers.0.self_attn"}, {"layers.0.mlp", "layers.1.self_attn.q_proj"}})});
  cases.push_back({Fsdp2("tied_and_biased", TinyGpt2()), Compiled(v1::BUCKET_BY_MODULES, true, {{"layers.*"}})});
  Case tp = Fsdp2("tp_and_checkpointing", TinyLlama());
  tp.world_size = 4;
  tp.recipe.mutable_parallelism()->set_tensor_parallel_degree(2);
  tp.recipe.mutable_activation_checkpoint()->set_mode(v1::AC_FULL);
  cases.push_back({tp, Compiled(v1::BUCKET_BY_MODULES, true, {{"layers.*"}})});
  tp.name = "tp_and_checkpointing_vanilla";
  cases.push_back({tp, Compiled(v1::BUCKET_NOTHING, true)});
  Case kept = Fsdp2("kept_parameters", TinyLlama());
  kept.recipe.mutable_parallelism()->set_fsdp_reshard_after_forward(v1::RESHARD_NEVER);
  cases.push_back({kept, Compiled(v1::BUCKET_BY_MODULES, true, {{"layers.*"}})});
  const auto replicated = [](const std::string& name, int64_t replicas) {
    Case made = Fsdp2(name, TinyLlama());
    made.world_size = 2 * replicas;
    made.recipe.mutable_parallelism()->set_data_parallel_replicate_degree(replicas);
    return made;
  };
  cases.push_back({replicated("hsdp_vanilla", 2), Compiled(v1::BUCKET_NOTHING, false)});
  cases.push_back({replicated("hsdp_reorder", 2), Compiled(v1::BUCKET_NOTHING, true)});
  cases.push_back({replicated("hsdp_bucket", 2), Compiled(v1::BUCKET_BY_MODULES, false, {{"layers.*"}, {"norm", "output"}})});
  Case hsdp = replicated("hsdp_bucket_and_reorder_in_bf16_accumulated", 2);
  hsdp.recipe.mutable_training()->set_mixed_precision_param(v1::BFLOAT16);
  hsdp.recipe.mutable_training()->set_global_batch_size(16);
  cases.push_back({hsdp, Compiled(v1::BUCKET_BY_MODULES, true, {{"layers.*"}, {"norm", "output"}})});
  hsdp.name = "hsdp_parts_of_layers_zero1_accumulated";
  hsdp.recipe.mutable_training()->set_mixed_precision_param(v1::FLOAT32);
  hsdp.recipe.mutable_parallelism()->set_zero_stage(1);
  cases.push_back({hsdp, Compiled(v1::BUCKET_BY_MODULES, true, {{"layers.0.mlp", "layers.1.self_attn"}, {"norm", "output"}})});
  for (const int64_t stage : {1, 2}) {
    const auto zero = [stage](const std::string& name) {
      Case made = Fsdp2(absl::StrCat("zero", stage, "_", name), TinyLlama());
      made.recipe.mutable_parallelism()->set_zero_stage(stage);
      return made;
    };
    cases.push_back({zero("vanilla"), Compiled(v1::BUCKET_NOTHING, false)});
    Case accumulated = zero("bucket_and_reorder_accumulated");
    accumulated.recipe.mutable_training()->set_global_batch_size(8);
    cases.push_back({accumulated, Compiled(v1::BUCKET_BY_MODULES, true, {{"tok_embeddings", "layers.0"}, {"norm", "output"}})});
    accumulated.name = absl::StrCat("zero", stage, "_tied_bucket");
    accumulated.model = TinyGpt2();
    cases.push_back({accumulated, Compiled(v1::BUCKET_BY_MODULES, false, {{"layers.*"}})});
  }
  Case stages = replicated("hsdp_pipeline_zero_bubble", 2);
  stages.model = DeepLlama();
  stages.world_size = 8;
  stages.recipe.mutable_training()->set_local_batch_size(4);
  stages.recipe.mutable_parallelism()->set_pipeline_parallel_degree(2);
  stages.recipe.mutable_parallelism()->set_pipeline_parallel_schedule(v1::INTERLEAVED_ZERO_BUBBLE);
  cases.push_back({stages, Compiled(v1::BUCKET_BY_MODULES, true, {{"layers.*"}, {"norm", "output"}})});
  for (const v1::PipelineSchedule schedule :
       {v1::ONE_F_ONE_B, v1::INTERLEAVED_1F1B, v1::INTERLEAVED_ZERO_BUBBLE, v1::DUALPIPE_V}) {
    Case pp = Fsdp2("pipeline_" + EnumText(schedule), DeepLlama());
    pp.world_size = 4;
    pp.recipe.mutable_training()->set_local_batch_size(4);
    pp.recipe.mutable_parallelism()->set_pipeline_parallel_degree(2);
    pp.recipe.mutable_parallelism()->set_pipeline_parallel_schedule(schedule);
    cases.push_back({pp, Compiled(v1::BUCKET_BY_MODULES, true, {{"layers.*"}, {"norm", "output"}})});
  }
  // The first rank has embedding and head, which share a weight.
  for (const v1::PipelineSchedule schedule : {v1::ZBV_ZERO_BUBBLE, v1::DUALPIPE_V}) {
    Case tied = Fsdp2("pipeline_tied_" + EnumText(schedule), DeepGpt2());
    tied.world_size = 4;
    tied.recipe.mutable_training()->set_local_batch_size(4);
    tied.recipe.mutable_parallelism()->set_pipeline_parallel_degree(2);
    tied.recipe.mutable_parallelism()->set_pipeline_parallel_schedule(schedule);
    cases.push_back({tied, Compiled(v1::BUCKET_BY_MODULES, true, {{"layers.*"}})});
    tied.name += "_vanilla";
    cases.push_back({tied, Compiled(v1::BUCKET_NOTHING, false)});
  }
  Case accumulated = Fsdp2("pipeline_vanilla_in_bf16_checkpointed", TinyLlama());
  accumulated.world_size = 4;
  accumulated.recipe.mutable_training()->set_local_batch_size(4);
  accumulated.recipe.mutable_training()->set_mixed_precision_param(v1::BFLOAT16);
  accumulated.recipe.mutable_activation_checkpoint()->set_mode(v1::AC_FULL);
  accumulated.recipe.mutable_parallelism()->set_pipeline_parallel_degree(2);
  cases.push_back({accumulated, Compiled(v1::BUCKET_NOTHING, false)});
  return cases;
}

// Other buckets in backward than in forward, under FSDP, HSDP and ZeRO.
std::vector<PassCase> ApartCases() {
  std::vector<PassCase> cases;
  const auto add = [&](const std::string& name, const v1::Model& model, bool reorder, auto change) {
    PassCase made{Fsdp2(name, model), Compiled(v1::BUCKET_BY_MODULES, reorder, {{"layers.*"}, {"norm", "output"}})};
    change(&made.eager);
    for (const auto& bucket : std::vector<std::vector<std::string>>{
             {"tok_embeddings", "layers.0.self_attn"}, {"layers.1", "norm"}, {"layers.0.mlp", "output"}}) {
      v1::ModelPart* const part = made.compile.add_fsdp_backward_buckets();
      for (const std::string& module : bucket) part->add_modules(module);
    }
    cases.push_back(made);
  };
  const auto accumulate = [](Case* c) { c->recipe.mutable_training()->set_global_batch_size(4 * c->world_size); };
  const auto replicate = [](Case* c) {
    c->world_size = 4;
    c->recipe.mutable_parallelism()->set_data_parallel_replicate_degree(2);
  };
  add("apart", TinyLlama(), true, [](Case*) {});
  add("apart_in_order", TinyLlama(), false, [](Case*) {});
  add("apart_checkpointed_in_bf16_accumulated", TinyLlama(), true, [&](Case* c) {
    c->recipe.mutable_activation_checkpoint()->set_mode(v1::AC_FULL);
    c->recipe.mutable_training()->set_mixed_precision_param(v1::BFLOAT16);
    accumulate(c);
  });
  add("apart_kept_parameters", TinyLlama(), true,
      [](Case* c) { c->recipe.mutable_parallelism()->set_fsdp_reshard_after_forward(v1::RESHARD_NEVER); });
  add("apart_hsdp", TinyLlama(), true, replicate);
  add("apart_hsdp_accumulated", TinyLlama(), true, [&](Case* c) { replicate(c), accumulate(c); });
  for (const int64_t stage : {1, 2}) {
    const auto zero = [&, stage](Case* c) {
      c->recipe.mutable_parallelism()->set_zero_stage(stage);
      accumulate(c);
    };
    add(absl::StrCat("apart_zero", stage), TinyLlama(), true, zero);
    add(absl::StrCat("apart_zero", stage, "_hsdp"), TinyLlama(), true, [&](Case* c) { replicate(c), zero(c); });
  }
  add("apart_pipeline", DeepLlama(), true, [](Case* c) {
    c->world_size = 4;
    c->recipe.mutable_training()->set_local_batch_size(4);
    c->recipe.mutable_parallelism()->set_pipeline_parallel_degree(2);
  });
  return cases;
}

// Tensor parallel over two ranks or more, cut in every way that there is.
std::vector<PassCase> AsyncCases() {
  std::vector<PassCase> cases;
  v1::Model four = TinyLlama();  // layers, and channels for four ranks
  four.set_num_hidden_layers(4);
  four.set_intermediate_size(56);
  const auto add = [&](const std::string& name, const v1::Model& model, int64_t world, int64_t tp, auto change) {
    Case made = Fsdp2(name, model);
    made.world_size = world;
    made.recipe.mutable_parallelism()->set_data_parallel_shard_degree(-1);
    made.recipe.mutable_parallelism()->set_tensor_parallel_degree(tp);
    change(&made.recipe);
    cases.push_back({made, Compiled(v1::BUCKET_BY_BLOCK, true), true});
  };
  add("async_tp2", TinyLlama(), 2, 2, [](v1::Recipe* r) { r->mutable_training()->set_local_batch_size(1); });
  add("async_tp2_of_several_sequences", TinyLlama(), 2, 2, [](v1::Recipe*) {});
  add("async_tp2_in_bf16", TinyLlama(), 2, 2,
      [](v1::Recipe* r) { r->mutable_training()->set_mixed_precision_param(v1::BFLOAT16); });
  add("async_tp2_of_whole_logits", TinyLlama(), 2, 2,
      [](v1::Recipe* r) { r->mutable_parallelism()->set_disable_loss_parallel(true); });
  add("async_tp2_biased_and_tied", TinyGpt2(), 2, 2, [](v1::Recipe*) {});
  add("async_tp2_gathered_again_and_checkpointed", TinyLlama(), 2, 2, [](v1::Recipe* r) {
    r->mutable_parallelism()->set_sequence_parallel_gather_in_backward(true);
    r->mutable_activation_checkpoint()->set_mode(v1::AC_FULL);
  });
  add("async_tp4", four, 4, 4, [](v1::Recipe* r) { r->mutable_training()->set_local_batch_size(1); });
  add("async_tp2_fsdp2", TinyLlama(), 4, 2, [](v1::Recipe* r) { r->mutable_training()->set_global_batch_size(8); });
  add("async_tp2_cp2", TinyLlama(), 4, 2, [](v1::Recipe* r) {
    r->mutable_parallelism()->set_context_parallel_degree(2);
    r->mutable_parallelism()->set_context_parallel_rotate_method(v1::ROTATE_BY_RING);
  });
  add("async_tp2_pp2", four, 4, 2, [](v1::Recipe* r) {
    r->mutable_parallelism()->set_pipeline_parallel_degree(2);
    r->mutable_parallelism()->set_pipeline_parallel_microbatch_size(1);
  });
  add("async_tp2_pp2_zero_bubble", four, 4, 2, [](v1::Recipe* r) {
    r->mutable_parallelism()->set_pipeline_parallel_degree(2);
    r->mutable_parallelism()->set_pipeline_parallel_schedule(v1::INTERLEAVED_ZERO_BUBBLE);
    r->mutable_parallelism()->set_pipeline_parallel_layers_per_stage(1);
    r->mutable_parallelism()->set_pipeline_parallel_microbatch_size(1);
    r->mutable_parallelism()->set_sequence_parallel_gather_in_backward(true);
    r->mutable_activation_checkpoint()->set_mode(v1::AC_SELECTIVE);
    r->mutable_activation_checkpoint()->set_selective_ac_option("op");
  });
  Case bucketed = Fsdp2("async_tp2_fsdp2_in_buckets", TinyLlama());
  bucketed.world_size = 4;
  bucketed.recipe.mutable_parallelism()->set_tensor_parallel_degree(2);
  cases.push_back({bucketed, Compiled(v1::BUCKET_BY_MODULES, true, {{"layers.*"}}), true});
  return cases;
}

// Of cut products within this; PyTorch's own default tolerance for float32 is 1.3e-6, and three steps add up.
constexpr double kTolerance = 2e-5, kBfloat16Tolerance = 2e-2;

// Empty, or by how much they differ. `largest`: so far, relative to what differs.
std::string Difference(const PassCase& pass_case, const at::Tensor& eager, const at::Tensor& rewritten, double* largest) {
  if (SameBits(eager, rewritten)) return "";
  const double most = (eager.to(at::kDouble) - rewritten.to(at::kDouble)).abs().max().item<double>();
  const double size = eager.to(at::kDouble).abs().max().item<double>();
  const bool reduced = pass_case.eager.recipe.training().mixed_precision_param() == v1::BFLOAT16;
  *largest = std::max(*largest, most / size);
  if (pass_case.async && most <= (reduced ? kBfloat16Tolerance : kTolerance) * size) return "";
  return absl::StrCat("by ", most, " of ", size);
}

std::map<std::string, at::Tensor> StateByName(train::TrainStep& step) {
  std::map<std::string, at::Tensor> state;
  for (const auto& of : step.State()) state.emplace(of.name, of.tensor);
  return state;
}

// `largest` becomes the largest difference.
void CheckRank(const PassCase& pass_case, int64_t rank, const parallel::ResolvedRecipe& eager_recipe, double* largest) {
  Case compiled = pass_case.eager;
  *compiled.recipe.mutable_compile() = pass_case.compile;
  compiled.recipe.mutable_parallelism()->set_enable_async_tensor_parallel(pass_case.async);
  const auto resolved = Must(parallel::ResolvedRecipe::Create(compiled.recipe, compiled.model, compiled.world_size));
  auto eager = Must(train::TrainStep::Build(eager_recipe, at::kCPU, /*materialize=*/true));
  auto executed = Must(train::TrainStep::Build(resolved, at::kCPU, /*materialize=*/true));
  std::vector<graph::PassReport> reports;
  Must(graph::RunPasses(Must(sim::CaptureStep(resolved, rank)).trace, resolved, {.dump_directory = "", .check = true}, &reports));
  const bool joins = pass_case.compile.fsdp_bucketing() != v1::BUCKET_BY_BLOCK;
  const int buckets = pass_case.compile.fsdp_bucketing() == v1::BUCKET_BY_MODULES;
  EXPECT_EQ(reports.size(), pass_case.async + (joins ? 1u + buckets + pass_case.compile.fsdp_reorder() : 0u));
  for (const graph::PassReport& report : reports) {
    if (report.name == "async_tensor_parallel") {
      EXPECT_GT(report.after.operators, report.before.operators) << "something is cut";
      continue;
    }
    EXPECT_EQ(report.before.collective_bytes, report.after.collective_bytes) << report.name;
    EXPECT_EQ(report.name == "bucket_collectives", report.after.collectives < report.before.collectives) << report.name;
  }
  std::string warning;
  const train::StepPrograms programs = Must(train::AdoptPrograms(
      train::CapturePrograms(resolved, at::kCPU), resolved.recipe().compile(), *executed, at::kCPU, &warning));
  for (int64_t step = 0; step < 3; ++step) {
    FillInputs(eager->inputs(), pass_case.eager, eager_recipe, rank, step);
    FillInputs(executed->inputs(), pass_case.eager, resolved, rank, step);
    const auto result = Must(eager->Run());
    const auto rewritten = Must(programs.step->Run());
    EXPECT_EQ(Difference(pass_case, result.loss, rewritten.loss, largest), "") << "loss of step " << step;
    EXPECT_EQ(Difference(pass_case, result.grad_norm, rewritten.grad_norm, largest), "") << "gradient norm of step " << step;
    const auto left = StateByName(*eager), right = StateByName(*executed);
    ASSERT_EQ(left.size(), right.size());
    for (const auto& [name, tensor] : left) {
      if (tensor.storage().nbytes() == 0) continue;  // gathered parameters are resized away between steps
      ASSERT_EQ(right.count(name), 1u) << name;
      EXPECT_EQ(Difference(pass_case, tensor, right.at(name), largest), "") << name << " after step " << step;
    }
  }
}

class PassesTest : public testing::TestWithParam<PassCase> {};

TEST_P(PassesTest, TheRewrittenStepTrainsAsEagerDoes) {
  const auto largest = RunCase(GetParam().eager, [&](int64_t rank, comm::Runtime&, const parallel::ResolvedRecipe& resolved) {
    double most = 0;
    CheckRank(GetParam(), rank, resolved, &most);
    return absl::StrCat(most);
  });
  if (!GetParam().async) return;
  std::printf("%s: largest relative difference by rank: %s\n", GetParam().eager.name.c_str(),
              absl::StrJoin(largest, " ").c_str());
}

// What two ranks expose of their communication without and with the pass, in milliseconds a step. Printed; nobody's time is
// asserted.
TEST(AsyncTensorParallelOfTwoProcesses, IsMeasured) {
  Case measured = Fsdp2("measured", model::Llama({.vocab = 512, .hidden = 512, .intermediate = 1408, .layers = 4, .heads = 8,
                                                  .kv_heads = 8, .positions = 512}));
  measured.recipe.mutable_parallelism()->set_data_parallel_shard_degree(1);
  measured.recipe.mutable_parallelism()->set_tensor_parallel_degree(2);
  measured.recipe.mutable_training()->set_local_batch_size(1);
  measured.recipe.mutable_training()->set_seq_len(512);
  const auto rows = RunCase(measured, [&](int64_t rank, comm::Runtime& runtime, const parallel::ResolvedRecipe&) {
    std::string row;
    for (const bool async : {false, true}) {
      Case compiled = measured;
      compiled.recipe.mutable_compile()->set_enable(true);
      compiled.recipe.mutable_parallelism()->set_enable_async_tensor_parallel(async);
      const auto resolved = Must(parallel::ResolvedRecipe::Create(compiled.recipe, compiled.model, compiled.world_size));
      auto step = Must(train::TrainStep::Build(resolved, at::kCPU, /*materialize=*/true));
      std::string warning;
      const train::StepPrograms programs = Must(train::AdoptPrograms(
          train::CapturePrograms(resolved, at::kCPU), resolved.recipe().compile(), *step, at::kCPU, &warning));
      train::StepBreakdown sum;
      for (int64_t i = 0; i < 6; ++i) {
        FillInputs(step->inputs(), compiled, resolved, rank, i);
        comm::StepTimeline timeline;
        timeline.Begin();
        Must(programs.step->Run());
        Must(runtime.Drain());
        const comm::StepTimes times = Must(timeline.End());
        if (i == 0) continue;  // pages are new
        train::StepBreakdown one = train::BreakdownOf(times, runtime.groups());
        one.steps = 1, one.step_ns = times.length_ns;
        sum.Add(one);
      }
      EXPECT_EQ(sum.collectives.count({"rotate", "tp"}), async ? 1u : 0u);
      absl::StrAppend(&row, async ? "; async: " : "plain: ", sum.exposed_ns / sum.steps / 1000, " us exposed of ",
                      sum.step_ns / sum.steps / 1000);
    }
    return row;
  });
  for (const std::string& row : rows) std::printf("%s\n", row.c_str());
}

INSTANTIATE_TEST_SUITE_P(Recipes, PassesTest, testing::ValuesIn(PassCases()),
                         [](const auto& info) { return info.param.eager.name; });
INSTANTIATE_TEST_SUITE_P(Apart, PassesTest, testing::ValuesIn(ApartCases()),
                         [](const auto& info) { return info.param.eager.name; });
INSTANTIATE_TEST_SUITE_P(AsyncTensorParallel, PassesTest, testing::ValuesIn(AsyncCases()),
                         [](const auto& info) { return info.param.eager.name; });

}  // namespace
}  // namespace legoai::integration
