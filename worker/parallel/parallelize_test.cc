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

#include "proto/errors.h"
#include "worker/model/init.h"
#include "worker/parallel/testing/tiny_job.h"
#include "worker/train/loss.h"

namespace legoai::parallel {
namespace {

using at::Tensor;
using comm::testing::RunRanks;
using mesh::Mesh;
using testing::TinyJob;

constexpr int64_t kGlobalBatch = testing::kGlobalBatch, kSeq = testing::kSequence;
constexpr uint64_t kSeed = 7;

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

// Gradients of the parallel model against those of the whole one: norm of the difference over norm of the gradient.
void ExpectGradients(const TinyJob& test, int64_t rank, double tolerance) {
  at::set_num_threads(1);
  const v1::Recipe recipe = RecipeOf(test);
  const auto resolved = ResolvedRecipe::Create(recipe, test.model, test.mesh.world()).value();
  auto parallelized = Parallelize(*model::BuildModel(test.model), resolved).value();
  Materialize(parallelized, at::kCPU, kSeed, /*initialize=*/true);
  DataParallel& data_parallel = *parallelized.data_parallel;

  const int64_t rows = kGlobalBatch / resolved.mesh().dp();
  const Tensor samples = at::arange(rows, at::kLong) + rows * resolved.mesh().IndexOf(mesh::Dim::kDp, rank);
  StageRunner runner(parallelized.model.get(), Loss(), testing::StageOptionsOf(resolved, parallelized, rank),
                     {[&](size_t chunk, bool last, auto part) { data_parallel.BeginBackward(last, chunk, part); },
                      [&](size_t chunk, bool last, auto part) { data_parallel.EndBackward(last, chunk, part); }});
  runner.Run({TokensOf(samples), TargetsOf(samples), samples, Rng()});
  data_parallel.FinishBackward();

  const Whole whole = RunWhole(test.model);
  for (const model::Parameter* p : parallelized.model->Parameters()) {
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

void ExpectGradients(const TinyJob& test, double tolerance) {
  SCOPED_TRACE(::testing::Message() << v1::Architecture_Name(test.model.architecture()) << " pp " << test.mesh.pp << " replicate "
                                    << test.mesh.dp_replicate << " shard " << test.mesh.dp_shard << " tp " << test.mesh.tp
                                    << " checkpoint " << test.checkpoint << " accumulation " << test.accumulation << " "
                                    << v1::DType_Name(test.param));
  RunRanks(test.mesh, [&](int64_t rank, comm::Runtime&) { ExpectGradients(test, rank, tolerance); });
}

TEST(Parallelize, LlamaHasTheGradientsOfOneProcess) {
  bool checkpoint = false;
  for (const Mesh& mesh : {Mesh{}, Mesh{.dp_replicate = 2}, Mesh{.dp_shard = 3}, Mesh{.dp_replicate = 2, .dp_shard = 2},
                           Mesh{.tp = 2}, Mesh{.pp = 2}, Mesh{.dp_shard = 2, .tp = 2}, Mesh{.pp = 2, .dp_shard = 2}}) {
    checkpoint = !checkpoint;
    ExpectGradients({.mesh = mesh, .checkpoint = checkpoint}, 1e-4);
  }
  ExpectGradients({.mesh = {.pp = 2, .dp_shard = 2, .tp = 2}, .checkpoint = true}, 1e-4);
}

TEST(Parallelize, Gpt2RepeatsItsDropoutInEveryLayoutAndInRecomputation) {
  for (const Mesh& mesh : {Mesh{}, Mesh{.dp_replicate = 2}, Mesh{.dp_shard = 3}, Mesh{.tp = 2}, Mesh{.dp_shard = 2, .tp = 2}}) {
    for (bool checkpoint : {false, true})
      ExpectGradients({.mesh = mesh, .model = testing::TinyGpt2(), .checkpoint = checkpoint}, 1e-4);
  }
}

TEST(Parallelize, AccumulatesMicrobatches) {
  for (const Mesh& mesh : {Mesh{}, Mesh{.dp_shard = 2}, Mesh{.dp_replicate = 2, .dp_shard = 2}}) {
    ExpectGradients({.mesh = mesh, .model = testing::TinyGpt2(), .checkpoint = true, .accumulation = 3}, 1e-4);
  }
}

TEST(Parallelize, Bf16StaysNear) {
  for (const Mesh& mesh : {Mesh{}, Mesh{.dp_shard = 2}, Mesh{.dp_shard = 2, .tp = 2}}) {
    ExpectGradients({.mesh = mesh, .checkpoint = true, .param = v1::BFLOAT16}, 5e-2);
  }
}

// A device whose memory the host cannot write (the meta device stands for a GPU).
TEST(Parallelize, WeightsOfAnotherDeviceAreInitializedInHostMemory) {
  const TinyJob test;
  RunRanks(test.mesh, [&](int64_t, comm::Runtime&) {
    const v1::Recipe recipe = RecipeOf(test);
    const auto resolved = ResolvedRecipe::Create(recipe, test.model, 1);
    auto parallelized = Parallelize(*model::BuildModel(test.model), *resolved);
    EXPECT_TRUE(parallelized.ok()) << parallelized.status();
    Materialize(*parallelized, at::kMeta, kSeed, /*initialize=*/true);
    for (const model::Parameter* p : parallelized->model->Parameters()) EXPECT_TRUE(p->master.is_meta()) << p->name();
  });
}

v1::Training Types(v1::DType param, v1::DType reduce) {
  v1::Training training;
  training.set_mixed_precision_param(param);
  training.set_mixed_precision_reduce(reduce);
  return training;
}

TEST(MixedPrecision, DefaultsAreBf16WithFp32Reduction) {
  const Precision precision = PrecisionOf({}).value();
  EXPECT_EQ(precision.param, at::kBFloat16);
  EXPECT_EQ(precision.reduce, at::kFloat);
  EXPECT_EQ(precision.master, at::kFloat);
}

TEST(MixedPrecision, FollowsTheRecipe) {
  const Precision precision = PrecisionOf(Types(v1::FLOAT32, v1::BFLOAT16)).value();
  EXPECT_EQ(precision.param, at::kFloat);
  EXPECT_EQ(precision.reduce, at::kBFloat16);
  v1::Training training = Types(v1::BFLOAT16, v1::FLOAT32);
  training.set_dtype(v1::BFLOAT16);
  EXPECT_EQ(PrecisionOf(training)->master, at::kBFloat16);
  EXPECT_EQ(PrecisionOf(Types(v1::FLOAT16, v1::FLOAT32))->param, at::kHalf);
  training.set_dtype(v1::FLOAT16);
  EXPECT_EQ(PrecisionOf(training)->master, at::kHalf);
}

TEST(MixedPrecision, RefusesOtherTypesByField) {
  const auto param = GetFieldViolation(PrecisionOf(Types(v1::INT8, v1::FLOAT32)).status());
  ASSERT_TRUE(param.has_value());
  EXPECT_EQ(param->field(), "training.mixed_precision_param");
  const auto reduce = GetFieldViolation(PrecisionOf(Types(v1::FLOAT32, v1::INT8)).status());
  ASSERT_TRUE(reduce.has_value());
  EXPECT_EQ(reduce->field(), "training.mixed_precision_reduce");
  v1::Training training = Types(v1::FLOAT32, v1::FLOAT32);
  training.set_dtype(v1::INT8);
  EXPECT_EQ(GetFieldViolation(PrecisionOf(training).status())->field(), "training.dtype");
}

}  // namespace
}  // namespace legoai::parallel
