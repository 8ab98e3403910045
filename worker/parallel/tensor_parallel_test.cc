#include "worker/parallel/tensor_parallel.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
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

// The same tensor on every rank.
Tensor Drawn(at::IntArrayRef sizes, uint64_t seed) {
  return at::randn(sizes, at::detail::createCPUGenerator(seed), at::TensorOptions(at::kFloat));
}

// Integers, so that sums are exact in any order and dtype.
Tensor Whole(at::IntArrayRef sizes, uint64_t seed, at::ScalarType dtype) { return (Drawn(sizes, seed) * 4).round().to(dtype); }

Tensor Shard(const Tensor& whole, int64_t tp, int64_t rank) {
  const int64_t n = whole.size(1) / tp;
  return whole.narrow(1, rank * n, n);
}

struct SequenceCase {
  int64_t tp, batch;
  at::ScalarType dtype;
};

class SequenceParallel : public ::testing::TestWithParam<SequenceCase> {};

TEST_P(SequenceParallel, GatherAndItsGradient) {
  const SequenceCase c = GetParam();
  RunRanks({.tp = c.tp}, [c](int64_t rank, comm::Runtime& runtime) {
    const int64_t group = runtime.GroupId(mesh::Dim::kTp);
    const Tensor whole = Whole({c.batch, 4 * c.tp, 3}, 1, c.dtype);
    Tensor local = Shard(whole, c.tp, rank).clone().set_requires_grad(true);
    Tensor gathered = GatherSequence(local, group);
    EXPECT_TRUE(at::equal(gathered, whole));
    EXPECT_TRUE(gathered.is_contiguous());
    // Each rank's own gradient of the whole; they are summed.
    Tensor sum = at::zeros_like(whole);
    for (int64_t r = 0; r < c.tp; ++r) sum = sum + Whole(whole.sizes(), 100 + r, c.dtype);
    gathered.backward(Whole(whole.sizes(), 100 + rank, c.dtype));
    EXPECT_TRUE(at::equal(local.grad(), Shard(sum, c.tp, rank)));
  });
}

TEST_P(SequenceParallel, ReduceScatterAndItsGradient) {
  const SequenceCase c = GetParam();
  RunRanks({.tp = c.tp}, [c](int64_t rank, comm::Runtime& runtime) {
    const int64_t group = runtime.GroupId(mesh::Dim::kTp);
    const std::vector<int64_t> sizes{c.batch, 4 * c.tp, 3};
    Tensor sum = Whole(sizes, 10, c.dtype);
    for (int64_t r = 1; r < c.tp; ++r) sum = sum + Whole(sizes, 10 + r, c.dtype);
    Tensor partial = Whole(sizes, 10 + rank, c.dtype).set_requires_grad(true);
    Tensor local = ReduceScatterSequence(partial, group);
    EXPECT_TRUE(at::equal(local, Shard(sum, c.tp, rank)));
    const Tensor gradient = Whole(sizes, 7, c.dtype);
    local.backward(Shard(gradient, c.tp, rank));
    EXPECT_TRUE(at::equal(partial.grad(), gradient));
  });
}

TEST_P(SequenceParallel, ColumnsAndTheirGradient) {
  const SequenceCase c = GetParam();
  RunRanks({.tp = c.tp}, [c](int64_t rank, comm::Runtime& runtime) {
    const Tensor whole = Whole({c.batch, 5, 3 * c.tp}, 3, c.dtype);
    Tensor local = whole.narrow(2, 3 * rank, 3).clone().set_requires_grad(true);
    Tensor gathered = GatherColumns(local, runtime.GroupId(mesh::Dim::kTp));
    EXPECT_TRUE(at::equal(gathered, whole));
    const Tensor gradient = Whole(whole.sizes(), 4, c.dtype);
    gathered.backward(gradient);
    EXPECT_TRUE(at::equal(local.grad(), gradient.narrow(2, 3 * rank, 3)));
  });
}

INSTANTIATE_TEST_SUITE_P(Cases, SequenceParallel,
                         ::testing::Values(SequenceCase{1, 2, at::kFloat}, SequenceCase{2, 1, at::kFloat},
                                           SequenceCase{2, 3, at::kFloat}, SequenceCase{3, 2, at::kFloat},
                                           SequenceCase{2, 2, at::kBFloat16}),
                         [](const auto& info) {
                           return "tp" + std::to_string(info.param.tp) + "_batch" + std::to_string(info.param.batch) + "_" +
                                  (info.param.dtype == at::kFloat ? "fp32" : "bf16");
                         });

TEST(SequenceParallelErrors, SequencesThatDoNotDivide) {
  RunRanks({.tp = 2}, [](int64_t rank, comm::Runtime& runtime) {
    EXPECT_THROW(ReduceScatterSequence(Drawn({1, 3, 2}, 1), runtime.GroupId(mesh::Dim::kTp)), c10::Error);
  });
}

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
    const Schedule schedule = MakeSchedule(v1::ONE_F_ONE_B, c.pp, c.pp, c.microbatches).value();
    StageRunner runner(model.get(), loss,
                       {stage, schedule, c.microbatches, {c.batch, kSequence / c.tp, config.hidden_size()}, c.dtype},
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
