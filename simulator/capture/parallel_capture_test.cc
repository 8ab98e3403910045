// Steps of parallel models, rank by rank over real processes: the capture on the fake device, made by one process without
// communication, is the program of the real run.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "simulator/capture/fake_device.h"
#include "worker/comm/runtime.h"
#include "worker/comm/streams.h"
#include "worker/comm/testing/process_group_test_util.h"
#include "worker/graph/compare.h"
#include "worker/graph/recorder.h"
#include "worker/graph/verify.h"
#include "worker/parallel/parallelize.h"
#include "worker/parallel/pipeline/stage_runner.h"
#include "worker/parallel/testing/tiny_llama.h"
#include "worker/train/loss.h"

namespace legoai::sim {
namespace {

using at::Tensor;
using comm::testing::Mesh;
using ::testing::IsEmpty;

constexpr int64_t kGlobalBatch = 12, kSeq = parallel::testing::kSequence;

struct Case {
  Mesh mesh = {};
  bool gpt2 = false, checkpoint = false;
  int64_t accumulation = 1;
  v1::DType param = v1::FLOAT32;
  v1::ReshardPolicy reshard = v1::RESHARD_DEFAULT;
};

v1::Model ModelOf(const Case& test) {
  v1::Model config = parallel::testing::TinyLlama();
  if (!test.gpt2) return config;
  config.set_architecture(v1::GPT2);
  config.set_num_key_value_heads(config.num_attention_heads());
  config.set_tie_word_embeddings(true);
  config.set_embd_pdrop(0.2);
  config.set_attn_pdrop(0.2);
  config.set_resid_pdrop(0.2);
  return config;
}

v1::Recipe RecipeOf(const Case& test) {
  v1::Recipe recipe;
  auto& training = *recipe.mutable_training();
  training.set_global_batch_size(kGlobalBatch);
  training.set_local_batch_size(kGlobalBatch / (test.mesh.replicate * test.mesh.shard * test.accumulation));
  training.set_seq_len(kSeq);
  training.set_mixed_precision_param(test.param);
  auto& parallelism = *recipe.mutable_parallelism();
  parallelism.set_data_parallel_replicate_degree(test.mesh.replicate);
  parallelism.set_data_parallel_shard_degree(test.mesh.shard);
  parallelism.set_fsdp_reshard_after_forward(test.reshard);
  parallelism.set_tensor_parallel_degree(test.mesh.tp);
  parallelism.set_disable_loss_parallel(true);
  parallelism.set_pipeline_parallel_degree(test.mesh.pp);
  parallelism.set_pipeline_parallel_microbatch_size(2);
  recipe.mutable_activation_checkpoint()->set_mode(test.checkpoint ? v1::AC_FULL : v1::AC_NONE);
  return recipe;
}

// Records one step of this rank on the current runtime, after a step that is not recorded.
graph::Trace Capture(const Case& test, int64_t rank, bool fake) {
  FakeDevice device;
  graph::Recorder recorder(fake ? &device : nullptr);
  recorder.SetRecording(false);
  const v1::Model config = ModelOf(test);
  const v1::Recipe recipe = RecipeOf(test);
  const auto dims = parallel::ParallelDims::Create(recipe, config, test.mesh.World()).value();
  auto parallelized = parallel::Parallelize(model::BuildModel(config).value(), recipe, dims).value();
  parallel::Materialize(parallelized, at::kCPU, 7, /*initialize=*/!fake);
  auto& data_parallel = *parallelized.data_parallel;
  parallel::StageOptions options;
  options.stage = dims.CoordinatesOf(rank).pp;
  options.stages = dims.pp();
  options.microbatches = dims.microbatches();
  options.activation_sizes = {dims.microbatch_size(), kSeq / dims.tp(), config.hidden_size()};
  options.activation = at::TensorOptions().dtype(parallelized.precision.param);
  parallel::StageRunner runner(parallelized.model.get(), train::MakeCrossEntropy(0.01), options,
                               {[&](bool last) { data_parallel.BeginBackward(last); }, {}});
  const int64_t rows = kGlobalBatch / dims.dp();
  const auto integers = at::TensorOptions().dtype(at::kLong);
  parallel::StageInputs inputs{at::zeros({rows, kSeq}, integers), at::zeros({rows, kSeq}, integers), at::zeros({rows}, integers),
                               at::zeros({2}, integers)};
  for (const auto& state : data_parallel.State()) recorder.Input(state.name, state.tensor, state.category);
  for (const auto& [name, buffer] : parallelized.model->Buffers()) recorder.Input(name, buffer, graph::Category::kBuffer);
  recorder.Input("tokens", inputs.tokens, graph::Category::kInput);
  recorder.Input("targets", inputs.targets, graph::Category::kInput);
  recorder.Input("samples", inputs.samples, graph::Category::kInput);
  recorder.Input("rng", inputs.rng, graph::Category::kInput);
  for (bool recorded : {false, true}) {
    if (fake && !recorded) continue;  // the first step is like any other
    recorder.SetRecording(recorded);
    runner.Run(inputs);
    data_parallel.FinishBackward();
    {
      at::NoGradGuard no_grad;
      for (model::Parameter* p : parallelized.model->Parameters()) p->master.sub_(p->grad, 0.1);
    }
    data_parallel.ReleaseGradients();
    EXPECT_EQ(comm::CurrentRuntime().Drain(), absl::OkStatus());
    recorder.SetRecording(false);
  }
  return recorder.Finish();
}

class ParallelCaptureTest : public ::testing::TestWithParam<Case> {};

TEST_P(ParallelCaptureTest, EqualsTheRealRunOnEveryRank) {
  const Case& test = GetParam();
  comm::testing::RunRanks(test.mesh, [&](int64_t rank, comm::Runtime&) {
    const graph::Trace real = Capture(test, rank, /*fake=*/false);
    const auto nowhere = comm::Runtime::Create(rank, test.mesh.Groups(rank), comm::MakeFakeStreams(), nullptr).value();
    comm::RuntimeScope scope(nowhere.get());
    const graph::Trace fake = Capture(test, rank, /*fake=*/true);
    EXPECT_GT(fake.OperatorCount(), 100);
    EXPECT_THAT(graph::Differences(real, fake), IsEmpty());
    EXPECT_THAT(graph::BadReads(fake), IsEmpty());
    EXPECT_THAT(graph::Races(fake), IsEmpty());
    EXPECT_THAT(fake.warnings, IsEmpty());
    return std::string();
  });
}

std::vector<Case> Cases() {
  std::vector<Case> cases;
  for (bool checkpoint : {false, true}) {
    for (const Mesh& mesh : {Mesh{}, Mesh{.replicate = 2}, Mesh{.shard = 3}, Mesh{.replicate = 2, .shard = 2}, Mesh{.tp = 2},
                             Mesh{.shard = 2, .tp = 2}, Mesh{.pp = 2}, Mesh{.pp = 2, .shard = 2}}) {
      cases.push_back({.mesh = mesh, .checkpoint = checkpoint});
    }
    cases.push_back({.mesh = {.shard = 2}, .checkpoint = checkpoint, .param = v1::BFLOAT16});
    cases.push_back({.mesh = {.shard = 2}, .gpt2 = true, .checkpoint = checkpoint, .accumulation = 3});
    cases.push_back({.mesh = {.replicate = 2}, .gpt2 = true, .checkpoint = checkpoint, .accumulation = 2, .param = v1::BFLOAT16});
    cases.push_back({.mesh = {.shard = 2}, .checkpoint = checkpoint, .reshard = v1::RESHARD_NEVER});
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Recipes, ParallelCaptureTest, ::testing::ValuesIn(Cases()), [](const auto& info) {
  const Case& c = info.param;
  return std::to_string(info.index) + "pp" + std::to_string(c.mesh.pp) + "replicate" + std::to_string(c.mesh.replicate) +
         "shard" + std::to_string(c.mesh.shard) + "tp" + std::to_string(c.mesh.tp) + (c.gpt2 ? "gpt2" : "llama") +
         (c.checkpoint ? "checkpoint" : "") + (c.param == v1::BFLOAT16 ? "bf16" : "");
});

}  // namespace
}  // namespace legoai::sim
