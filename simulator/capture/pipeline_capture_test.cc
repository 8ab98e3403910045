// Tensor parallelism, pipelines and both, with several microbatches: rank by rank, the capture on the fake device is the program
// of the real run over Gloo; its streams do not race; and executing it in as many processes gives the real run's loss and
// gradients bit by bit.
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <ostream>
#include <string>

#include "simulator/capture/fake_device.h"
#include "worker/comm/testing/process_group_test_util.h"
#include "worker/graph/compare.h"
#include "worker/graph/executor.h"
#include "worker/graph/recorder.h"
#include "worker/graph/verify.h"
#include "worker/parallel/loss_parallel.h"
#include "worker/parallel/pipeline/stage_runner.h"
#include "worker/parallel/tensor_parallel.h"
#include "worker/parallel/testing/tiny_llama.h"
#include "worker/train/loss.h"

namespace legoai::sim {
namespace {

using at::Tensor;
using ::testing::IsEmpty;

constexpr int64_t kMicrobatches = 3, kRows = 2;  // kRows sequences each

struct Case {
  const char* name;
  int64_t pp = 1, tp = 1;
  v1::PipelineSchedule schedule = v1::ONE_F_ONE_B;
  bool gather_logits = false;
  at::ScalarType dtype = at::kFloat;
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

struct Capture {
  graph::Trace trace;
  std::map<std::string, Tensor> inputs, outputs;  // copies; of a real run
};

// On the current runtime.
Capture CaptureOf(const Case& c, bool real) {
  FakeDevice device;
  graph::Recorder recorder(real ? nullptr : &device);
  recorder.SetRecording(false);
  const comm::Runtime& runtime = comm::CurrentRuntime();
  const int64_t tp_group = runtime.GroupId("tp"), stage = runtime.GroupRank(runtime.GroupId("pp"));
  Capture capture;
  const auto input = [&](const std::string& name, const Tensor& tensor, graph::Category category) {
    recorder.Input(name, tensor, category);
    if (real) capture.inputs[name] = tensor.detach().clone();
  };
  const v1::Model config = parallel::testing::TinyLlama();
  auto model = parallel::testing::Build(config, c.dtype);
  const int64_t blocks = config.num_hidden_layers();
  model->KeepLayers(stage == 0, blocks * stage / c.pp, blocks * (stage + 1) / c.pp, stage + 1 == c.pp);
  v1::Recipe recipe;
  recipe.mutable_parallelism()->set_disable_loss_parallel(c.gather_logits);
  TORCH_CHECK(parallel::ApplyTensorParallel(model.get(), recipe).ok());
  if (real) {
    parallel::testing::Fill(model.get(), c.dtype);
  } else {
    for (model::Parameter* p : model->Parameters()) p->value = at::empty(p->local_shape, c.dtype).set_requires_grad(true);
  }
  for (model::Parameter* p : model->Parameters()) input(p->name(), p->value, graph::Category::kUnshardedParameter);
  for (const auto& [name, buffer] : model->Buffers()) input(name, buffer, graph::Category::kBuffer);
  const int64_t rows = kMicrobatches * kRows;
  const std::vector<int64_t> sizes{rows, parallel::testing::kSequence};
  parallel::StageInputs inputs{at::empty(sizes, at::kLong), at::empty(sizes, at::kLong), at::arange(rows, at::kLong),
                               at::zeros({2}, at::kLong)};
  if (real) {
    inputs.tokens = parallel::testing::Tokens(rows, config.vocab_size(), 1);
    inputs.targets = parallel::testing::Tokens(rows, config.vocab_size(), 2);
  }
  input("tokens", inputs.tokens, graph::Category::kInput);
  input("targets", inputs.targets, graph::Category::kInput);
  input("samples", inputs.samples, graph::Category::kInput);
  input("rng", inputs.rng, graph::Category::kInput);

  const double scale = 1.0 / (rows * parallel::testing::kSequence);
  const int64_t offset = parallel::VocabularyOffset(config.vocab_size(), c.tp, runtime.GroupRank(tp_group));
  const bool whole_logits = c.tp == 1 || c.gather_logits;
  parallel::StageRunner runner(
      model.get(), whole_logits ? train::MakeCrossEntropy(scale) : parallel::MakeLossParallel(scale, offset, tp_group),
      {stage, c.pp, c.schedule, kMicrobatches, {kRows, parallel::testing::kSequence / c.tp, config.hidden_size()}, c.dtype}, {});
  recorder.SetRecording(true);
  const Tensor loss = runner.Run(inputs);
  recorder.SetRecording(false);
  const auto output = [&](const std::string& name, const Tensor& tensor) {
    recorder.Output(name, tensor);
    if (real) capture.outputs[name] = tensor.clone();
  };
  output("loss", loss);
  for (model::Parameter* p : model->Parameters()) output("gradient of " + p->name(), p->value.grad());
  capture.trace = recorder.Finish();
  return capture;
}

bool SameBits(const Tensor& a, const Tensor& b) {
  const Tensor x = a.contiguous(), y = b.contiguous();
  return x.sizes() == y.sizes() && x.dtype() == y.dtype() && std::memcmp(x.const_data_ptr(), y.const_data_ptr(), x.nbytes()) == 0;
}

class PipelineCapture : public ::testing::TestWithParam<Case> {};

TEST_P(PipelineCapture, EqualsTheRealRunAndExecutes) {
  const Case c = GetParam();
  const comm::testing::Mesh mesh{.pp = c.pp, .tp = c.tp};
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
    return std::string();
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
