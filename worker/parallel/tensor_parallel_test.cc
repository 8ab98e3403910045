#include "worker/parallel/tensor_parallel.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "proto/errors.h"
#include "worker/comm/ops.h"
#include "worker/comm/testing/process_group_test_util.h"
#include "worker/parallel/loss_parallel.h"
#include "worker/parallel/pipeline/stage_runner.h"
#include "worker/parallel/testing/tiny_job.h"
#include "worker/train/loss.h"

namespace legoai::parallel {
namespace {

using at::Tensor;
using comm::testing::RunRanks;
using testing::kSequence;

struct Case {
  std::string name;
  int64_t pp = 1, tp = 2, batch = 1, microbatches = 1;
  bool gather_logits = false, tied = false;
  at::ScalarType dtype = at::kFloat;
  int64_t vocabulary = 12, inner = 20;
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

v1::Model Config(const Case& c) {
  v1::Model config = testing::TinyLlama();
  config.set_vocab_size(c.vocabulary);
  config.set_intermediate_size(c.inner);
  config.set_tie_word_embeddings(c.tied);
  if (c.tp > 2) config.set_num_key_value_heads(4);
  return config;
}

v1::Recipe Recipe(bool gather_logits) {
  v1::Recipe recipe;
  recipe.mutable_parallelism()->set_disable_loss_parallel(gather_logits);
  return recipe;
}

double Distance(const Tensor& a, const Tensor& b) { return (a.to(at::kDouble) - b.to(at::kDouble)).norm().item<double>(); }

// In fp32, near the truth. In bf16, no further from it than a few times what one process is in bf16.
void ExpectClose(const Tensor& value, const Tensor& same_type, const Tensor& truth, const std::string& what) {
  ASSERT_EQ(value.sizes(), truth.sizes()) << what;
  EXPECT_LE(Distance(value, truth), 1e-5 * truth.norm().item<double>() + 3 * Distance(same_type, truth)) << what;
}

class TensorParallel : public ::testing::TestWithParam<Case> {};

// With and without pipeline, so sequence shards travel between stages too.
TEST_P(TensorParallel, LossAndGradientsEqualThoseOfOneProcess) {
  const Case c = GetParam();
  RunRanks({.pp = c.pp, .tp = c.tp}, [c](int64_t rank, comm::Runtime& runtime) {
    const v1::Model config = Config(c);
    const int64_t rows = c.batch * c.microbatches, stage = rank / c.tp, index = rank % c.tp,
                  group = runtime.GroupId(mesh::Dim::kTp);
    const double scale = 1.0 / (rows * kSequence);
    const StageInputs inputs{testing::Tokens(rows, c.vocabulary, 1), testing::Tokens(rows, c.vocabulary, 2), at::arange(rows),
                             at::zeros({2}, at::kLong)};
    const auto run_alone = [&](at::ScalarType dtype) {
      return testing::RunReference(config, dtype, train::MakeCrossEntropy(scale), inputs.tokens, inputs.targets, c.microbatches);
    };
    const auto truth = run_alone(at::kFloat), same_type = run_alone(c.dtype);

    auto model = testing::Build(config, c.dtype);
    const int64_t blocks = config.num_hidden_layers();
    model->KeepLayers({{stage == 0, blocks * stage / c.pp, blocks * (stage + 1) / c.pp, stage + 1 == c.pp}});
    EXPECT_EQ(ApplyTensorParallel(model.get(), Recipe(c.gather_logits)), absl::OkStatus());
    testing::Fill(model.get(), c.dtype);
    const LossFunction loss = c.gather_logits ? train::MakeCrossEntropy(scale)
                                              : MakeLossParallel(scale, VocabularyOffset(c.vocabulary, c.tp, index), group);
    StageRunner runner(model.get(), loss,
                       {stage, c.pp, v1::ONE_F_ONE_B, c.microbatches, {c.batch, kSequence / c.tp, config.hidden_size()}, c.dtype},
                       {});
    const Tensor sum = runner.Run(inputs);
    if (stage + 1 == c.pp) {
      EXPECT_NEAR(sum.item<float>(), truth.loss.item<float>(), c.dtype == at::kFloat ? 1e-5 : 5e-2);
    }
    for (model::Parameter* parameter : model->Parameters()) {
      EXPECT_EQ(parameter->local_shape, parameter->spec.sizes);
      Tensor gradient = parameter->value.grad().to(at::kFloat).clone();
      if (!parameter->spec.gradient_partial_over.empty()) comm::AllReduce(gradient, group);
      const auto part = [&](const testing::Reference& alone) {
        return testing::PartOf(alone.gradients.at(parameter->name()), parameter->spec);
      };
      ExpectClose(gradient, part(same_type), part(truth), parameter->name());
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Cases, TensorParallel,
                         ::testing::Values(Case{.name = "one"}, Case{.name = "batch", .batch = 3},
                                           Case{.name = "gathered", .batch = 2, .gather_logits = true},
                                           Case{.name = "tied", .batch = 2, .tied = true},
                                           Case{.name = "uneven", .batch = 2, .vocabulary = 13, .inner = 21},
                                           Case{.name = "three_microbatches", .batch = 2, .microbatches = 3},
                                           Case{.name = "bf16", .batch = 2, .dtype = at::kBFloat16},
                                           Case{.name = "pipeline", .pp = 2, .batch = 2, .microbatches = 3}),
                         [](const auto& info) { return info.param.name; });

TEST(TensorParallelSpecs, CoverEveryWeightOnce) {
  std::map<std::string, int64_t> elements, whole;
  const auto parts = RunRanks({.tp = 2}, [](int64_t rank, comm::Runtime& runtime) {
    auto model = testing::Build(testing::TinyLlama(), at::kFloat);
    EXPECT_TRUE(ApplyTensorParallel(model.get(), Recipe(false)).ok());
    std::string text;
    for (model::Parameter* p : model->Parameters()) {
      const bool norm = p->name().find("norm") != std::string::npos;
      EXPECT_EQ(p->spec.IsShardedOver(mesh::Dim::kTp), !norm) << p->name();
      EXPECT_EQ(p->spec.gradient_partial_over, norm ? std::vector<mesh::Dim>{mesh::Dim::kTp} : std::vector<mesh::Dim>{})
          << p->name();
      if (!norm)
        text += p->name() + " " + std::to_string(p->spec.Elements()) + " " + std::to_string(p->spec.GlobalElements()) + "\n";
    }
    return text;
  });
  for (const std::string& part : parts) {
    std::istringstream lines(part);
    std::string name;
    for (int64_t mine, all; lines >> name >> mine >> all; whole[name] = all) elements[name] += mine;
  }
  EXPECT_EQ(elements.size(), 2u + 4 * 7);
  EXPECT_EQ(elements, whole);
}

TEST(TensorParallelErrors, AnArchitectureWithoutAPlanIsRefusedByName) {
  RunRanks({.tp = 2}, [](int64_t rank, comm::Runtime& runtime) {
    v1::Model config = testing::TinyLlama();
    config.set_architecture(v1::ARCHITECTURE_UNSPECIFIED);
    model::LanguageModel model(config, {}, std::make_shared<model::StepContext>());
    const absl::Status status = ApplyTensorParallel(&model, Recipe(false));
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(GetFieldViolation(status)->field(), "parallelism.tensor_parallel_degree");
    EXPECT_NE(status.message().find("ARCHITECTURE_UNSPECIFIED"), std::string::npos);
  });
}

TEST(VocabularyOffset, IsWhereTheShardsBegin) {
  EXPECT_EQ(VocabularyOffset(13, 2, 0), 0);
  EXPECT_EQ(VocabularyOffset(13, 2, 1), 7);
  EXPECT_EQ(VocabularyOffset(12, 4, 3), 9);
}

}  // namespace
}  // namespace legoai::parallel
