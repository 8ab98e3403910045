#include "worker/parallel/tensor_parallel.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/trace/annotation.h"
#include "core/trace/effects.h"
#include "core/trace/verify.h"
#include "proto/errors.h"
#include "worker/comm/ops.h"
#include "worker/comm/testing/process_group_test_util.h"
#include "worker/graph/recorder.h"
#include "worker/model/weight_gradients.h"
#include "worker/parallel/activation_checkpoint.h"
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
  bool gather_logits = false, tied = false, gather_again = false, splits_tokens = true;
  v1::PipelineSchedule schedule = v1::ONE_F_ONE_B;
  at::ScalarType dtype = at::kFloat;
  int64_t vocabulary = 12, inner = 20;
  v1::Architecture architecture = v1::LLAMA;
  bool parallel_block = false;
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

v1::Model Config(const Case& c) {
  v1::Model config = testing::TinyLlama();
  config.set_vocab_size(c.vocabulary);
  config.set_intermediate_size(c.inner);
  config.set_tie_word_embeddings(c.tied);
  if (c.tp > 2) config.set_num_key_value_heads(4);
  config.set_architecture(c.architecture);
  config.set_qk_norm(c.architecture == v1::QWEN3);
  config.set_parallel_block(c.parallel_block);
  if (c.architecture == v1::GEMMA2) {
    config.set_sliding_window(3);
    config.set_sliding_window_alternates(true);
    config.set_attn_logit_softcapping(2);
    config.set_final_logit_softcapping(3);
  }
  return config;
}

v1::Recipe Recipe(bool gather_logits, bool gather_again = false, bool splits_tokens = true) {
  v1::Recipe recipe;
  if (!splits_tokens) recipe.mutable_parallelism()->set_sequence_parallel(false);
  recipe.mutable_parallelism()->set_sequence_parallel_gather_in_backward(gather_again);
  recipe.mutable_parallelism()->set_disable_loss_parallel(gather_logits);
  return recipe;
}

double Distance(const Tensor& a, const Tensor& b) { return (a.to(at::kDouble) - b.to(at::kDouble)).norm().item<double>(); }

// In fp32, near the truth. In bf16, no further from it than a few times what one process is in bf16. `rounding`: of sums whose
// true value is 0, as the gradient of a bias of keys, which adds the same to all scores of a query.
void ExpectClose(const Tensor& value, const Tensor& same_type, const Tensor& truth, double rounding, const std::string& what) {
  ASSERT_EQ(value.sizes(), truth.sizes()) << what;
  EXPECT_LE(Distance(value, truth), rounding + 1e-5 * truth.norm().item<double>() + 3 * Distance(same_type, truth)) << what;
}

class TensorParallel : public ::testing::TestWithParam<Case> {};

// With and without pipeline, so sequence shards travel between stages too.
TEST_P(TensorParallel, LossAndGradientsEqualThoseOfOneProcess) {
  const Case c = GetParam();
  RunRanks({.pp = c.pp, .tp = c.tp, .gathers_beside = c.gather_again}, [c](int64_t rank, comm::Runtime& runtime) {
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
    EXPECT_EQ(ApplyTensorParallel(model.get(), Recipe(c.gather_logits, c.gather_again, c.splits_tokens)), absl::OkStatus());
    testing::Fill(model.get(), c.dtype);
    const LossFunction loss = c.gather_logits ? train::MakeCrossEntropy(scale)
                                              : MakeLossParallel(scale, VocabularyOffset(c.vocabulary, c.tp, index), group);
    const Schedule schedule = MakeSchedule(c.schedule, c.pp, c.pp, c.microbatches).value();
    StageRunner runner(model.get(), loss,
                       {stage,
                        schedule,
                        c.microbatches,
                        {c.batch, c.splits_tokens ? kSequence / c.tp : kSequence, config.hidden_size()},
                        c.dtype},
                       {});
    const Tensor sum = runner.Run(inputs);
    if (stage + 1 == c.pp) {
      EXPECT_NEAR(sum.item<float>(), truth.loss.item<float>(), c.dtype == at::kFloat ? 1e-5 : 5e-2);
    }
    double largest = 0;
    for (const auto& [name, gradient] : truth.gradients) largest = std::max(largest, gradient.norm().item<double>());
    for (model::Parameter* parameter : model->Parameters()) {
      EXPECT_EQ(parameter->local_shape, parameter->spec.sizes);
      Tensor gradient = parameter->value.grad().to(at::kFloat).clone();
      if (!parameter->spec.gradient_partial_over.empty()) comm::AllReduce(gradient, group);
      const auto part = [&](const testing::Reference& alone) {
        return testing::PartOf(alone.gradients.at(parameter->name()), parameter->spec);
      };
      ExpectClose(gradient, part(same_type), part(truth), 1e-6 * largest, parameter->name());
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
                                           Case{.name = "pipeline", .pp = 2, .batch = 2, .microbatches = 3},
                                           Case{.name = "whole", .splits_tokens = false},
                                           Case{.name = "whole_of_four", .tp = 4, .batch = 2, .splits_tokens = false},
                                           Case{.name = "whole_gathered_tied",
                                                .batch = 3,
                                                .gather_logits = true,
                                                .tied = true,
                                                .splits_tokens = false},
                                           Case{.name = "whole_bf16", .batch = 2, .splits_tokens = false, .dtype = at::kBFloat16},
                                           Case{.name = "whole_zero_bubble",
                                                .pp = 2,
                                                .batch = 2,
                                                .microbatches = 3,
                                                .splits_tokens = false,
                                                .schedule = v1::INTERLEAVED_ZERO_BUBBLE},
                                           Case{.name = "qwen3", .batch = 2, .architecture = v1::QWEN3},
                                           Case{.name = "whole_qwen3", .splits_tokens = false, .architecture = v1::QWEN3},
                                           Case{.name = "gemma2", .batch = 2, .architecture = v1::GEMMA2},
                                           Case{.name = "gemma2_gathered", .gather_logits = true, .architecture = v1::GEMMA2},
                                           Case{.name = "whole_gemma2", .splits_tokens = false, .architecture = v1::GEMMA2},
                                           Case{.name = "gpt", .batch = 2, .architecture = v1::GPT2},
                                           Case{.name = "whole_gpt", .splits_tokens = false, .architecture = v1::GPT2},
                                           Case{.name = "sides", .batch = 2, .architecture = v1::GPT2, .parallel_block = true},
                                           Case{.name = "whole_sides",
                                                .batch = 2,
                                                .splits_tokens = false,
                                                .architecture = v1::GPT2,
                                                .parallel_block = true},
                                           Case{.name = "again_sides",
                                                .gather_again = true,
                                                .architecture = v1::GPT2,
                                                .parallel_block = true},
                                           Case{.name = "again", .gather_again = true},
                                           Case{.name = "again_batch", .batch = 3, .gather_logits = true, .gather_again = true},
                                           Case{.name = "again_zero_bubble",
                                                .pp = 2,
                                                .batch = 2,
                                                .microbatches = 3,
                                                .gather_again = true,
                                                .schedule = v1::INTERLEAVED_ZERO_BUBBLE}),
                         [](const auto& info) { return info.param.name; });

struct Microbatch {
  int64_t batch = 1;
  at::ScalarType dtype = at::kFloat;
  const char* checkpointing = "none";  // or "full", or a selective_ac_option
  bool parts_backward = false;
};

// Of one microbatch on this rank of tensor parallelism, by name. `recorder`, where it is not null, records forward and backward.
std::map<std::string, Tensor> Gradients(const Microbatch& m, bool gather_again, comm::Runtime& runtime,
                                        graph::Recorder* recorder = nullptr) {
  const v1::Model config = testing::TinyLlama();
  const int64_t group = runtime.GroupId(mesh::Dim::kTp);
  auto model = testing::Build(config, m.dtype);
  EXPECT_EQ(ApplyTensorParallel(model.get(), Recipe(false, gather_again)), absl::OkStatus());
  v1::ActivationCheckpoint checkpointing;
  const std::string option = m.checkpointing;
  checkpointing.set_mode(option == "none" ? v1::AC_NONE : option == "full" ? v1::AC_FULL : v1::AC_SELECTIVE);
  checkpointing.set_selective_ac_option(option);
  ApplyActivationCheckpoint(*model, checkpointing);
  testing::Fill(model.get(), m.dtype);
  model->context().samples = at::arange(m.batch);
  model->context().rng = at::zeros({2}, at::kLong);
  const int64_t vocabulary = config.vocab_size(), tp = runtime.GroupSize(group);
  const LossFunction loss = MakeLossParallel(0.1, VocabularyOffset(vocabulary, tp, runtime.GroupRank(group)), group);
  const Tensor tokens = testing::Tokens(m.batch, vocabulary, 1), targets = testing::Tokens(m.batch, vocabulary, 2);
  if (recorder != nullptr) recorder->SetRecording(true);
  const Tensor value = loss((*model)(tokens), targets);
  model::WeightGradients queue;
  {
    std::optional<model::DeferWeightGradients> later;
    if (m.parts_backward) later.emplace(&queue);
    graph::PhaseScope phase(graph::Phase::kBackward);
    value.backward();
  }
  queue.Compute();
  std::map<std::string, Tensor> gradients;
  for (model::Parameter* parameter : model->Parameters()) gradients[parameter->name()] = parameter->value.grad();
  return gradients;
}

// When it is gathered again an input is what it was.
TEST(GatherInBackward, GradientsAreTheSameBitByBit) {
  std::vector<Microbatch> microbatches;
  for (const bool parts_backward : {false, true}) {
    for (const char* checkpointing : {"none", "full", "op"}) {
      microbatches.push_back({1, at::kFloat, checkpointing, parts_backward});
      microbatches.push_back({2, at::kBFloat16, checkpointing, parts_backward});
    }
  }
  RunRanks({.tp = 2, .gathers_beside = true}, [&](int64_t rank, comm::Runtime& runtime) {
    at::set_num_threads(1);
    for (const Microbatch& m : microbatches) {
      SCOPED_TRACE(::testing::Message() << m.checkpointing << ", batch " << m.batch << ", parts " << m.parts_backward);
      const auto kept = Gradients(m, false, runtime), again = Gradients(m, true, runtime);
      ASSERT_EQ(kept.size(), again.size());
      for (const auto& [name, gradient] : kept) EXPECT_TRUE(at::equal(gradient, again.at(name))) << name;
    }
  });
}

// Each region gathers once more; the first of its products to need the input computes the gradient of it meanwhile.
TEST(GatherInBackward, RunsBesideTheGradientOfTheInput) {
  const mesh::Mesh mesh{.tp = 2, .gathers_beside = true};
  for (const bool parts_backward : {false, true}) {
    auto runtime = comm::Runtime::Create(0, mesh.Groups(0), comm::MakeFakeStreams(), nullptr);
    ASSERT_TRUE(runtime.ok());
    comm::RuntimeScope scope(runtime->get());
    graph::Recorder recorder;
    recorder.SetRecording(false);
    Gradients({.parts_backward = parts_backward}, true, **runtime, &recorder);
    EXPECT_TRUE((*runtime)->Drain().ok());
    const graph::Trace trace = recorder.Finish();
    EXPECT_EQ(graph::Races(trace), std::vector<std::string>());
    std::map<std::string, std::string> orders;  // by module, in backward: G gathers on the side stream, W waits, P a product
    int gathers = 0;
    for (const graph::Instruction& instruction : trace.instructions) {
      if (instruction.kind != graph::Instruction::Kind::kOperator) continue;
      const std::string& name = trace.OperatorName(instruction);
      const bool gathers_beside = instruction.stream == comm::kTensorGather && name == "lego::all_gather_into";
      gathers += gathers_beside;
      if (instruction.phase != graph::Phase::kBackward) continue;
      std::string& order = orders[trace.modules[instruction.module]];
      if (gathers_beside) order += 'G';
      if (name == "aten::mm") order += 'P';
      const auto use = graph::EventOf(trace, instruction);
      if (use && !use->is_record && use->stream == comm::kCompute) order += 'W';
    }
    EXPECT_EQ(gathers, 2 * testing::TinyLlama().num_hidden_layers() + 1);
    if (parts_backward) continue;
    EXPECT_EQ(orders["model.layers.1.mlp.up_proj"], "GPWP");
    EXPECT_EQ(orders["model.layers.1.mlp.gate_proj"], "PP");
    EXPECT_EQ(orders["model.layers.1.self_attn.v_proj"], "GPWP");
    EXPECT_EQ(orders["model.layers.1.self_attn.q_proj"], "PP");
    EXPECT_EQ(orders["lm_head"], "GPWP");
  }
}

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
