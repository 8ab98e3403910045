// The passes of core/trace/passes on real steps: the captured step of each rank, rewritten, run with Gloo as a trainer runs
// it, trains as the eager trainer does without [compile], bit by bit, three steps in a row. Every pass is checked on the way.
#include "core/trace/passes/pipeline.h"

#include <ATen/core/Tensor.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "core/recipe/recipe.h"
#include "simulator/capture/capture.h"
#include "tests/integration/cases.h"
#include "tests/integration/train_in_processes.h"
#include "worker/graph/fake/testing/capture_recorder.h"
#include "worker/train/step_program.h"

namespace legoai::integration {
namespace {

using sim::testing::SameBits;

struct PassCase {
  Case eager;
  v1::CompileSection compile;
};

v1::CompileSection Compiled(v1::FsdpBucketing bucketing, bool reorder, const std::vector<std::vector<std::string>>& buckets = {}) {
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
  Case made{name, model, parallel::DefaultRecipe(), 2};
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
  return cases;
}

std::map<std::string, at::Tensor> StateByName(train::TrainStep& step) {
  std::map<std::string, at::Tensor> state;
  for (const auto& of : step.State()) state.emplace(of.name, of.tensor);
  return state;
}

void CheckRank(const PassCase& pass_case, int64_t rank, const parallel::ResolvedRecipe& eager_recipe) {
  Case compiled = pass_case.eager;
  *compiled.recipe.mutable_compile() = pass_case.compile;
  const auto resolved = Must(parallel::ResolvedRecipe::Create(compiled.recipe, compiled.model, compiled.world_size));
  auto eager = Must(train::TrainStep::Build(eager_recipe, at::kCPU, /*materialize=*/true));
  auto executed = Must(train::TrainStep::Build(resolved, at::kCPU, /*materialize=*/true));
  std::vector<graph::PassReport> reports;
  Must(graph::RunPasses(Must(sim::CaptureStep(resolved, rank)).trace, resolved, {.dump_directory = "", .check = true}, &reports));
  EXPECT_EQ(reports.size(), 1u + (pass_case.compile.fsdp_bucketing() == v1::BUCKET_BY_MODULES) + pass_case.compile.fsdp_reorder());
  for (const graph::PassReport& report : reports) {
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
    EXPECT_TRUE(SameBits(result.loss, rewritten.loss)) << "loss of step " << step;
    EXPECT_TRUE(SameBits(result.grad_norm, rewritten.grad_norm)) << "gradient norm of step " << step;
    const auto left = StateByName(*eager), right = StateByName(*executed);
    ASSERT_EQ(left.size(), right.size());
    for (const auto& [name, tensor] : left) {
      if (tensor.storage().nbytes() == 0) continue;  // gathered parameters are resized away between steps
      ASSERT_EQ(right.count(name), 1u) << name;
      EXPECT_TRUE(SameBits(tensor, right.at(name))) << name << " after step " << step;
    }
  }
}

class PassesTest : public testing::TestWithParam<PassCase> {};

TEST_P(PassesTest, TheRewrittenStepTrainsAsEagerDoes) {
  RunCase(GetParam().eager, [&](int64_t rank, comm::Runtime&, const parallel::ResolvedRecipe& resolved) {
    CheckRank(GetParam(), rank, resolved);
    return std::string();
  });
}

INSTANTIATE_TEST_SUITE_P(Recipes, PassesTest, testing::ValuesIn(PassCases()),
                         [](const auto& info) { return info.param.eager.name; });

}  // namespace
}  // namespace legoai::integration
