// Tensor parallelism, pipelines and both, with several microbatches: rank by rank, the capture on the fake device is the program
// of the real run over Gloo; its streams do not race; and executing it in as many processes gives the real run's loss and
// gradients bit by bit.
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ostream>
#include <string>

#include "core/trace/verify.h"
#include "worker/comm/testing/process_group_test_util.h"
#include "worker/graph/executor.h"
#include "worker/graph/fake/testing/capture_recorder.h"
#include "worker/parallel/loss_parallel.h"
#include "worker/parallel/pipeline/stage_runner.h"
#include "worker/parallel/tensor_parallel.h"
#include "worker/parallel/testing/tiny_job.h"
#include "worker/train/loss.h"

namespace legoai::sim {
namespace {

using at::Tensor;
using testing::Capture;
using testing::CaptureRecorder;
using ::testing::IsEmpty;
using testing::SameBits;

constexpr int64_t kMicrobatches = 3, kRows = 2;  // kRows sequences each

struct Case {
  const char* name;
  int64_t pp = 1, tp = 1;
  v1::PipelineSchedule schedule = v1::ONE_F_ONE_B;
  bool gather_logits = false;
  at::ScalarType dtype = at::kFloat;
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

// On the current runtime.
Capture CaptureOf(const Case& c, bool real) {
  CaptureRecorder recorder(real);
  const comm::Runtime& runtime = comm::CurrentRuntime();
  const int64_t tp_group = runtime.GroupId(mesh::Dim::kTp), stage = runtime.GroupRank(runtime.GroupId(mesh::Dim::kPp));
  const v1::Model config = parallel::testing::TinyLlama();
  auto model = parallel::testing::Build(config, c.dtype);
  const int64_t blocks = config.num_hidden_layers();
  model->KeepLayers({{stage == 0, blocks * stage / c.pp, blocks * (stage + 1) / c.pp, stage + 1 == c.pp}});
  v1::Recipe recipe;
  recipe.mutable_parallelism()->set_disable_loss_parallel(c.gather_logits);
  TORCH_CHECK(parallel::ApplyTensorParallel(model.get(), recipe).ok());
  if (real) {
    parallel::testing::Fill(model.get(), c.dtype);
  } else {
    for (model::Parameter* p : model->Parameters()) p->value = at::empty(p->local_shape, c.dtype).set_requires_grad(true);
  }
  for (model::Parameter* p : model->Parameters()) recorder.Input(p->name(), p->value, graph::Category::kUnshardedParameter);
  for (const auto& [name, buffer] : model->Buffers()) recorder.Input(name, buffer, graph::Category::kBuffer);
  const int64_t rows = kMicrobatches * kRows;
  const std::vector<int64_t> sizes{rows, parallel::testing::kSequence};
  parallel::StageInputs inputs{at::empty(sizes, at::kLong), at::empty(sizes, at::kLong), at::arange(rows, at::kLong),
                               at::zeros({2}, at::kLong)};
  if (real) {
    inputs.tokens = parallel::testing::Tokens(rows, config.vocab_size(), 1);
    inputs.targets = parallel::testing::Tokens(rows, config.vocab_size(), 2);
  }
  recorder.Input("tokens", inputs.tokens, graph::Category::kInput);
  recorder.Input("targets", inputs.targets, graph::Category::kInput);
  recorder.Input("samples", inputs.samples, graph::Category::kInput);
  recorder.Input("rng", inputs.rng, graph::Category::kInput);

  const double scale = 1.0 / (rows * parallel::testing::kSequence);
  const int64_t offset = parallel::VocabularyOffset(config.vocab_size(), c.tp, runtime.GroupRank(tp_group));
  const bool whole_logits = c.tp == 1 || c.gather_logits;
  parallel::StageRunner runner(
      model.get(), whole_logits ? train::MakeCrossEntropy(scale) : parallel::MakeLossParallel(scale, offset, tp_group),
      {stage,
       parallel::MakeSchedule(c.schedule, c.pp, c.pp, kMicrobatches).value(),
       kMicrobatches,
       {kRows, parallel::testing::kSequence / c.tp, config.hidden_size()},
       c.dtype,
       {}},
      {});
  recorder.SetRecording(true);
  const Tensor loss = runner.Run(inputs);
  recorder.SetRecording(false);
  recorder.Output("loss", loss);
  for (model::Parameter* p : model->Parameters()) recorder.Output("gradient of " + p->name(), p->value.grad());
  return recorder.Finish();
}

class PipelineCapture : public ::testing::TestWithParam<Case> {};

TEST_P(PipelineCapture, EqualsTheRealRunAndExecutes) {
  const Case c = GetParam();
  const mesh::Mesh mesh{.pp = c.pp, .tp = c.tp};
  comm::testing::RunRanks(mesh, [&](int64_t rank, comm::Runtime&) {
    const Capture real = CaptureOf(c, true);
    Capture fake;
    {
      const auto runtime = comm::Runtime::Create(rank, mesh.Groups(rank), comm::MakeFakeStreams(), nullptr).value();
      comm::RuntimeScope scope(runtime.get());
      fake = CaptureOf(c, false);
    }
    EXPECT_THAT(graph::Differences(real.trace, fake.trace), IsEmpty());
    EXPECT_THAT(graph::Races(fake.trace), IsEmpty());
    EXPECT_THAT(graph::BadReads(fake.trace), IsEmpty());
    EXPECT_THAT(fake.trace.warnings, IsEmpty());

    const auto executor = graph::Executor::Create(fake.trace, c10::kCPU).value();
    for (const auto& [name, tensor] : real.inputs) EXPECT_TRUE(executor->Bind(name, tensor).ok()) << name;
    for (int step = 0; step < 2; ++step) {
      const absl::Status run = executor->Run();
      EXPECT_TRUE(run.ok()) << run;
      for (const auto& [name, tensor] : real.outputs) EXPECT_TRUE(SameBits(executor->Output(name).value(), tensor)) << name;
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Cases, PipelineCapture,
                         ::testing::Values(Case{.name = "tp2", .tp = 2},
                                           Case{.name = "tp2_gathered", .tp = 2, .gather_logits = true},
                                           Case{.name = "tp2_bf16", .tp = 2, .dtype = at::kBFloat16},
                                           Case{.name = "pp2_gpipe", .pp = 2, .schedule = v1::GPIPE},
                                           Case{.name = "pp3_1f1b", .pp = 3}, Case{.name = "pp2_tp2", .pp = 2, .tp = 2}),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace legoai::sim
