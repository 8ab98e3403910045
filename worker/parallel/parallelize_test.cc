// Models as recipes lay them out, over real processes, against plain autograd on the whole model in the same process.
#include "worker/parallel/parallelize.h"

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "worker/comm/testing/process_group_test_util.h"
#include "worker/model/init.h"
#include "worker/parallel/pipeline/stage_runner.h"
#include "worker/parallel/testing/tiny_llama.h"
#include "worker/train/loss.h"

namespace legoai::parallel {
namespace {

using at::Tensor;
using comm::testing::Mesh;
using comm::testing::RunRanks;

constexpr int64_t kGlobalBatch = 12, kSeq = testing::kSequence;
constexpr uint64_t kSeed = 7;

v1::Model TinyGpt2() {
  v1::Model config = testing::TinyLlama();
  config.set_architecture(v1::GPT2);
  config.set_num_key_value_heads(config.num_attention_heads());
  config.set_intermediate_size(4 * config.hidden_size());
  config.set_num_hidden_layers(2);
  config.set_tie_word_embeddings(true);
  config.set_embd_pdrop(0.2);
  config.set_attn_pdrop(0.2);
  config.set_resid_pdrop(0.2);
  return config;
}

struct Case {
  Mesh mesh = {};
  v1::Model model = {};
  bool checkpoint = false;
  int64_t accumulation = 1;
  v1::DType param = v1::FLOAT32;
};

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
  parallelism.set_tensor_parallel_degree(test.mesh.tp);
  parallelism.set_disable_loss_parallel(true);
  parallelism.set_pipeline_parallel_degree(test.mesh.pp);
  parallelism.set_pipeline_parallel_microbatch_size(1);
  recipe.mutable_activation_checkpoint()->set_mode(test.checkpoint ? v1::AC_FULL : v1::AC_NONE);
  return recipe;
}

// The whole model of one process, as an oracle: weights by the same rules, gradients of the whole batch by autograd alone.
struct Whole {
  std::unique_ptr<model::LanguageModel> model;
  std::map<std::string, const model::Parameter*> parameters;
  double least = 0;  // norm below which a gradient counts as noise: 1e-3 of an average parameter's
};

Tensor Rng() { return at::arange(2, at::kLong) + 5; }
Tensor TokensOf(const Tensor& samples) { return (samples.view({-1, 1}) * 7 + at::arange(kSeq, at::kLong) * 5) % 12; }
Tensor TargetsOf(const Tensor& samples) { return (TokensOf(samples) * 5 + samples.view({-1, 1})) % 12; }
LossFunction Loss() { return train::MakeCrossEntropy(1.0 / (kGlobalBatch * kSeq)); }

Whole RunWhole(const v1::Model& config) {
  Whole whole{.model = testing::Build(config, at::kFloat), .parameters = {}, .least = 0};
  for (model::Parameter* p : whole.model->Parameters()) {
    p->value = at::empty(p->local_shape, at::kFloat);
    model::FillParameter(p->spec, p->init, kSeed, p->value);
    p->value.set_requires_grad(true);
    whole.parameters[p->name()] = p;
  }
  const Tensor samples = at::arange(kGlobalBatch, at::kLong);
  whole.model->context().rng = Rng();
  whole.model->context().samples = samples;
  Loss()((*whole.model)(TokensOf(samples)), TargetsOf(samples)).backward();
  double squares = 0;
  for (const auto& [name, p] : whole.parameters) squares += p->value.grad().square().sum().item<double>();
  whole.least = 1e-3 * std::sqrt(squares / whole.parameters.size());
  return whole;
}

StageOptions OptionsOf(const ParallelDims& dims, const ParallelizedModel& parallelized, int64_t rank) {
  StageOptions options;
  options.stage = dims.CoordinatesOf(rank).pp;
  options.stages = dims.pp();
  options.microbatches = dims.microbatches();
  options.activation_sizes = {dims.microbatch_size(), dims.seq_len() / dims.tp(), parallelized.model->config().hidden_size()};
  options.activation = at::TensorOptions().dtype(parallelized.precision.param);
  return options;
}

// Gradients of the parallel model against those of the whole one: norm of the difference over norm of the gradient.
void ExpectGradients(const Case& test, int64_t rank, double tolerance) {
  at::set_num_threads(1);
  const v1::Recipe recipe = RecipeOf(test);
  const auto dims = ParallelDims::Create(recipe, test.model, test.mesh.World());
  ASSERT_TRUE(dims.ok()) << dims.status();
  auto parallelized = Parallelize(*model::BuildModel(test.model), recipe, *dims);
  ASSERT_TRUE(parallelized.ok()) << parallelized.status();
  Materialize(*parallelized, at::kCPU, kSeed, /*initialize=*/true);
  DataParallel& data_parallel = *parallelized->data_parallel;

  const int64_t rows = kGlobalBatch / dims->dp();
  const Tensor samples = at::arange(rows, at::kLong) + rows * dims->DataParallelRank(rank);
  StageRunner runner(parallelized->model.get(), Loss(), OptionsOf(*dims, *parallelized, rank),
                     {[&](bool last) { data_parallel.BeginBackward(last); }, {}});
  runner.Run({TokensOf(samples), TargetsOf(samples), samples, Rng()});
  data_parallel.FinishBackward();

  const Whole whole = RunWhole(test.model);
  for (const model::Parameter* p : parallelized->model->Parameters()) {
    const model::Parameter& truth = *whole.parameters.at(p->name());
    EXPECT_TRUE(at::equal(p->master, testing::PartOf(truth.value.detach(), p->spec))) << p->name();
    if (p->spec.Elements() == 0) continue;
    const Tensor expected = testing::PartOf(truth.value.grad(), p->spec);
    const double difference = (p->grad - expected).norm().item<double>();
    // Of a part, which may be small by chance, the whole tensor's norm says what is small.
    const double size = std::max(truth.value.grad().norm().item<double>(), whole.least);
    EXPECT_LE(difference, tolerance * size) << p->name() << " of rank " << rank;
  }
}

void ExpectGradients(const Case& test, double tolerance) {
  SCOPED_TRACE(::testing::Message() << v1::Architecture_Name(test.model.architecture()) << " pp " << test.mesh.pp << " replicate "
                                    << test.mesh.replicate << " shard " << test.mesh.shard << " tp " << test.mesh.tp
                                    << " checkpoint " << test.checkpoint << " accumulation " << test.accumulation << " "
                                    << v1::DType_Name(test.param));
  RunRanks(test.mesh, [&](int64_t rank, comm::Runtime&) {
    ExpectGradients(test, rank, tolerance);
    return std::string();
  });
}

TEST(Parallelize, LlamaHasTheGradientsOfOneProcess) {
  bool checkpoint = false;
  for (const Mesh& mesh : {Mesh{}, Mesh{.replicate = 2}, Mesh{.shard = 3}, Mesh{.replicate = 2, .shard = 2}, Mesh{.tp = 2},
                           Mesh{.pp = 2}, Mesh{.shard = 2, .tp = 2}, Mesh{.pp = 2, .shard = 2}}) {
    checkpoint = !checkpoint;
    ExpectGradients({.mesh = mesh, .model = testing::TinyLlama(), .checkpoint = checkpoint}, 1e-4);
  }
  ExpectGradients({.mesh = {.pp = 2, .shard = 2, .tp = 2}, .model = testing::TinyLlama(), .checkpoint = true}, 1e-4);
}

TEST(Parallelize, Gpt2RepeatsItsDropoutInEveryLayoutAndInRecomputation) {
  for (const Mesh& mesh : {Mesh{}, Mesh{.replicate = 2}, Mesh{.shard = 3}}) {
    for (bool checkpoint : {false, true}) ExpectGradients({.mesh = mesh, .model = TinyGpt2(), .checkpoint = checkpoint}, 1e-4);
  }
}

TEST(Parallelize, AccumulatesMicrobatches) {
  for (const Mesh& mesh : {Mesh{}, Mesh{.shard = 2}, Mesh{.replicate = 2, .shard = 2}}) {
    ExpectGradients({.mesh = mesh, .model = TinyGpt2(), .checkpoint = true, .accumulation = 3}, 1e-4);
  }
}

TEST(Parallelize, Bf16StaysNear) {
  for (const Mesh& mesh : {Mesh{}, Mesh{.shard = 2}, Mesh{.shard = 2, .tp = 2}}) {
    ExpectGradients({.mesh = mesh, .model = testing::TinyLlama(), .checkpoint = true, .param = v1::BFLOAT16}, 5e-2);
  }
}

}  // namespace
}  // namespace legoai::parallel
