// Forward and backward of whole models: the capture on the fake device is the program of the real run, and executing it gives
// the real run's logits and gradients bit by bit. So every operator of a model family has its shape rule.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ostream>
#include <string>

#include "core/model/catalog.h"
#include "core/trace/verify.h"
#include "worker/comm/runtime.h"
#include "worker/comm/streams.h"
#include "worker/graph/executor.h"
#include "worker/graph/fake/testing/capture_recorder.h"
#include "worker/model/init.h"
#include "worker/model/language_model.h"

namespace legoai::sim {
namespace {

using at::Tensor;
using testing::Capture;
using testing::CaptureRecorder;
using ::testing::IsEmpty;
using testing::SameBits;

struct Family {
  const char* name;
  v1::Architecture architecture;
  bool tied = false;
  double dropout = 0;
  at::ScalarType dtype = at::kFloat;
};
void PrintTo(const Family& family, std::ostream* out) { *out << family.name; }

v1::Model Config(const Family& family) {
  const bool is_gpt2 = family.architecture == v1::GPT2;
  v1::Model config = model::Llama({.vocab = 61,
                                   .hidden = 32,
                                   .intermediate = 44,
                                   .layers = 2,
                                   .heads = 4,
                                   .kv_heads = is_gpt2 ? 4 : 2,
                                   .positions = 32,
                                   .initializer_range = 0.2});
  config.set_architecture(family.architecture);
  config.set_tie_word_embeddings(family.tied);
  config.set_qkv_bias(family.architecture == v1::QWEN2);
  config.set_qk_norm(family.architecture == v1::QWEN3);
  config.set_sliding_window(family.architecture == v1::MISTRAL ? 5 : 0);
  if (family.architecture == v1::GEMMA2) {
    config.set_sliding_window(5);
    config.set_sliding_window_alternates(true);
    config.set_attn_logit_softcapping(2);
    config.set_final_logit_softcapping(3);
  }
  config.set_embd_pdrop(family.dropout);
  config.set_attn_pdrop(family.dropout);
  config.set_resid_pdrop(family.dropout);
  return config;
}

Capture CaptureOf(const Family& family, bool real) {
  CaptureRecorder recorder(real);
  auto model = model::BuildModel(Config(family)).value();
  for (model::Parameter* p : model->Parameters()) {
    Tensor start = at::empty(p->local_shape, at::kFloat);
    if (real) model::FillParameter(p->spec, p->init, 1, start);
    p->value = start.to(family.dtype).set_requires_grad(true);
    recorder.Input(p->name(), p->value, graph::Category::kUnshardedParameter);
  }
  model->CreateBuffers(at::kCPU, family.dtype, 16);
  for (const auto& [name, buffer] : model->Buffers()) recorder.Input(name, buffer, graph::Category::kBuffer);
  model::StepContext& context = model->context();
  context.rng = at::full({2}, 3, at::kLong);
  context.samples = at::arange(2, at::kLong);
  const Tensor tokens = at::arange(24, at::kLong).view({2, 12});
  recorder.Input("rng", context.rng, graph::Category::kInput);
  recorder.Input("samples", context.samples, graph::Category::kInput);
  recorder.Input("tokens", tokens, graph::Category::kInput);

  recorder.SetRecording(true);
  const Tensor logits = (*model)(tokens);
  logits.sum().backward();
  recorder.SetRecording(false);
  recorder.Output("logits", logits.detach());
  for (model::Parameter* p : model->Parameters()) recorder.Output("gradient of " + p->name(), p->value.grad());
  return recorder.Finish();
}

class ModelCaptureTest : public ::testing::TestWithParam<Family> {};

TEST_P(ModelCaptureTest, CaptureEqualsTheRealRunAndExecutes) {
  at::set_num_threads(1);
  const auto runtime = comm::Runtime::Create(0, {}, comm::MakeFakeStreams(), nullptr).value();
  comm::RuntimeScope scope(runtime.get());
  const Capture real = CaptureOf(GetParam(), true), fake = CaptureOf(GetParam(), false);
  EXPECT_GT(fake.trace.OperatorCount(), 50);
  EXPECT_THAT(graph::Differences(real.trace, fake.trace), IsEmpty());
  EXPECT_THAT(graph::BadReads(fake.trace), IsEmpty());
  EXPECT_THAT(fake.trace.warnings, IsEmpty());

  auto executor = graph::Executor::Create(fake.trace, c10::kCPU);
  ASSERT_TRUE(executor.ok()) << executor.status();
  for (const auto& [name, tensor] : real.inputs) ASSERT_EQ((*executor)->Bind(name, tensor), absl::OkStatus());
  ASSERT_EQ((*executor)->Run(), absl::OkStatus());
  for (const auto& [name, tensor] : real.outputs) {
    const auto output = (*executor)->Output(name);
    ASSERT_TRUE(output.ok()) << output.status();
    EXPECT_TRUE(SameBits(*output, tensor)) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(Families, ModelCaptureTest,
                         ::testing::Values(Family{"llama", v1::LLAMA}, Family{"llama_tied", v1::LLAMA, true},
                                           Family{"llama_bf16", v1::LLAMA, false, 0, at::kBFloat16},
                                           Family{"mistral", v1::MISTRAL},
                                           Family{"mistral_bf16", v1::MISTRAL, false, 0, at::kBFloat16},
                                           Family{"qwen2", v1::QWEN2}, Family{"qwen3", v1::QWEN3},
                                           Family{"gemma", v1::GEMMA, true},
                                           Family{"gemma_bf16", v1::GEMMA, true, 0, at::kBFloat16},
                                           Family{"gemma2", v1::GEMMA2, true},
                                           Family{"gemma2_bf16", v1::GEMMA2, false, 0, at::kBFloat16},
                                           Family{"gpt2", v1::GPT2, true}, Family{"gpt2_dropout", v1::GPT2, true, 0.1},
                                           Family{"gpt2_dropout_bf16", v1::GPT2, true, 0.1, at::kBFloat16}),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace legoai::sim
