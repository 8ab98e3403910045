// Every snippet: a capture on the fake device is the same program as one of the real run, strides included, and executing it
// gives the same bits. So every shape rule is compared with its CPU kernel.
#include "worker/graph/fake/fake_device.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/InferenceMode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "core/trace/verify.h"
#include "worker/graph/executor.h"
#include "worker/graph/fake/testing/capture_recorder.h"

namespace legoai::sim {
namespace {

using at::Tensor;
using graph::Trace;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::SameBits;
using List = std::vector<Tensor>;

struct Probe {
  const char* name;
  std::vector<std::vector<int64_t>> inputs;
  std::function<Tensor(List&)> function;
  bool backward = true;
  at::ScalarType dtype = at::kFloat;
};

List MakeInputs(const Probe& probe, bool real) {
  List inputs;
  auto generator = at::detail::createCPUGenerator(5);
  for (const auto& sizes : probe.inputs) {
    Tensor x = real ? at::randn(sizes, generator).to(probe.dtype) : at::empty(sizes, at::TensorOptions().dtype(probe.dtype));
    inputs.push_back(x.set_requires_grad(probe.backward));
  }
  return inputs;
}

struct Capture {
  Trace trace;
  List results;  // the output and the inputs' gradients, cloned; of a real run
};

// `given`: tensors to run on really; otherwise the fake device, the caller's or a new one.
Capture CaptureOf(const Probe& probe, List* given, FakeDevice* known_device = nullptr) {
  FakeDevice new_device;
  FakeDevice* device = known_device != nullptr ? known_device : &new_device;
  graph::Recorder recorder(given == nullptr ? device : nullptr);
  recorder.SetRecording(false);
  List inputs = given == nullptr ? MakeInputs(probe, false) : *given;
  for (size_t i = 0; i < inputs.size(); ++i) recorder.Input("x" + std::to_string(i), inputs[i], graph::Category::kInput);
  recorder.SetRecording(true);
  const Tensor y = probe.function(inputs);
  if (probe.backward) y.sum().backward();
  recorder.SetRecording(false);
  Capture capture;
  auto output = [&](const std::string& name, const Tensor& tensor) {
    recorder.Output(name, tensor);
    if (given != nullptr) capture.results.push_back(tensor.clone());
  };
  output("y", y.detach());
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i].grad().defined()) output("z" + std::to_string(i), inputs[i].grad());
  }
  capture.trace = recorder.Finish();
  return capture;
}

void ExpectExecutes(const Trace& trace, const List& inputs, const List& expected) {
  auto executor = graph::Executor::Create(trace, c10::kCPU).value();
  for (int run = 0; run < 2; ++run) {
    for (size_t i = 0; i < inputs.size(); ++i) {
      ASSERT_EQ(executor->Bind("x" + std::to_string(i), inputs[i].clone()), absl::OkStatus());
    }
    const auto status = executor->Run();
    ASSERT_TRUE(status.ok()) << status;
    size_t next = 0;
    for (const auto& [name, _] : trace.outputs) {  // in alphabetical order: y, z0, z1 ...
      const auto output = executor->Output(name).value();
      EXPECT_TRUE(SameBits(output, expected[next++])) << name << " in run " << run;
    }
  }
}

const Tensor& Outside(int64_t size) {  // made before any recorder listens
  static const Tensor small = at::arange(3, at::kFloat), big = at::ones({32});
  return size == 3 ? small : big;
}

// What models are made of.
std::vector<Probe> ModelProbes() {
  const std::vector<int64_t> q{2, 2, 8, 16};
  auto zeros = [](at::IntArrayRef sizes) { return at::zeros(sizes, at::kLong); };
  return {
      {"linear_2d", {{4, 8}, {6, 8}, {6}}, [](List& x) { return at::linear(x[0], x[1], x[2]); }},
      {"linear_3d", {{2, 4, 8}, {6, 8}, {6}}, [](List& x) { return at::linear(x[0], x[1], x[2]); }},
      {"linear_3d_no_bias", {{2, 4, 8}, {6, 8}}, [](List& x) { return at::linear(x[0], x[1]); }},
      {"matmul_broadcast", {{2, 3, 4, 8}, {8, 5}}, [](List& x) { return at::matmul(x[0], x[1]); }},
      {"layer_norm", {{2, 4, 8}, {8}, {8}}, [](List& x) { return at::layer_norm(x[0], {8}, x[1], x[2]); }},
      {"layer_norm_bf16",
       {{2, 4, 8}, {8}, {8}},
       [](List& x) { return at::layer_norm(x[0], {8}, x[1], x[2]); },
       true,
       at::kBFloat16},
      {"layer_norm_mixed",
       {{2, 4, 8}, {8}, {8}},
       [](List& x) { return at::layer_norm(x[0].to(at::kBFloat16), {8}, x[1], x[2]); }},
      {"rms_norm", {{2, 4, 8}, {8}}, [](List& x) { return at::rms_norm(x[0], {8}, x[1]); }},
      {"gelu_silu_mish", {{4, 8}}, [](List& x) { return at::gelu(x[0], "tanh") + at::silu(x[0]) + at::mish(x[0]); }},
      {"attention", {q, q, q}, [](List& x) { return at::scaled_dot_product_attention(x[0], x[1], x[2], {}, 0.0, true); }},
      {"attention_bf16",
       {q, q, q},
       [](List& x) { return at::scaled_dot_product_attention(x[0], x[1], x[2], {}, 0.0, true); },
       true,
       at::kBFloat16},
      {"attention_strided",
       {{2, 8, 3, 2, 16}},
       [](List& x) {
         const Tensor qkv = x[0].permute({2, 0, 3, 1, 4});
         const Tensor y = at::scaled_dot_product_attention(qkv[0], qkv[1], qkv[2], {}, 0.0, true);
         return y.transpose(1, 2).reshape({2, 8, 32});
       }},
      {"embedding", {{10, 4}}, [=](List& x) { return at::embedding(x[0], zeros({3})); }},
      {"embedding_2d",
       {{10, 4}},
       [=](List& x) {
         return at::embedding(x[0], zeros({2, 3}));
       }},
      {"index_select", {{10, 4}}, [=](List& x) { return at::index_select(x[0], 1, zeros({3})); }},
      {"index_list",
       {{10, 4, 3}},
       [=](List& x) {
         return x[0].index({zeros({2}), at::indexing::Slice(), zeros({2})});
       }},
      {"cross_entropy", {{6, 10}}, [=](List& x) { return at::cross_entropy_loss(x[0], zeros({6})); }},
      {"softmax_matmul",
       {q, q},
       [](List& x) { return at::matmul(at::softmax(at::matmul(x[0], x[1].transpose(-2, -1)), -1), x[1]); }},
  };
}

// Scalars, constants, views and what is done in place.
std::vector<Probe> ViewProbes() {
  return {
      {"scalars_and_0d", {{4}, {}}, [](List& x) { return x[0] * 2.5 + x[1] * 3 - 1 + x[0] * x[1]; }},
      {"wrapped_numbers", {{4}}, [](List& x) { return x[0] * at::scalar_tensor(2.0) + at::pow(2.0, x[0]); }},
      {"constant_kinds",
       {{4, 4}},
       [](List& x) { return (x[0] * 0.0 + x[0] * -0.0).clamp(std::nullopt, 2).sum({0}, true, at::kDouble); }},
      {"outside_small", {{3}}, [](List& x) { return x[0] * Outside(3); }},
      {"out_argument_grows",
       {{3}},
       [](List& x) {
         Tensor out = at::empty({0}, x[0].options());
         at::mul_out(out, x[0], x[0]);
         return out + 1;
       },
       false},
      {"resize_set_transpose",
       {{4, 6}},
       [](List& x) {
         Tensor a = x[0].clone();
         a.t_();
         Tensor c = a + 1;
         c.resize_({2, 2});
         Tensor d = at::empty({0}, x[0].options());
         d.set_(c);
         return d * 2 + a.narrow(0, 0, 2).narrow(1, 0, 2);
       },
       false},
      {"in_place_on_view",
       {{4, 4}},
       [](List& x) {
         Tensor y = x[0] * 2;
         y.select(0, 1).mul_(3);
         y.t().add_(1);
         return y;
       }},
      {"views_detach",
       {{4, 4}},
       [](List& x) {
         const Tensor y = x[0].view({2, 8}).t();
         Tensor z;
         {
           at::NoGradGuard guard;
           z = x[0].detach().variable_data() * 2;
         }
         return y.reshape({-1}) * z.flatten();
       }},
      {"inference_mode",
       {{4, 4}, {4, 4}},
       [](List& x) {
         c10::InferenceMode guard;
         return at::linear(x[0], x[1]).relu_();
       },
       false},
      {"split_chunk_cat_stack",
       {{4, 6}},
       [](List& x) {
         const auto chunks = x[0].chunk(3, 1), halves = x[0].split(2);
         return at::cat({chunks[0], chunks[2]}, 1).sum() + at::stack(halves).sum();
       }},
  };
}

// Optimizers, lists of tensors, and operators that no model here has.
std::vector<Probe> OtherProbes() {
  return {
      {"roll",
       {{2, 3, 4, 5}},
       [](List& x) {
         const Tensor channels_last = x[0].transpose(1, 3).contiguous().transpose(1, 3), turned = x[0].transpose(1, 2);
         return at::roll(x[0], {2}, {3}).sum() + at::roll(channels_last, {-2}, {3}).sum() + at::roll(turned, {1}, {3}).sum() +
                at::roll(x[0], {1, 2}, {1, 3}).sum() + at::roll(channels_last, {0}, {1}).sum() + at::roll(x[0], {7}).sum();
       }},
      {"product", {{4, 6}}, [](List& x) { return at::prod(x[0]) + at::prod(x[0].to(at::kInt)); }, false},
      {"foreach",
       {{4}, {3}},
       [](List& x) {
         List a{x[0].clone(), x[1].clone()};
         at::_foreach_add_(a, 1.0);
         at::_foreach_mul_(a, std::vector<at::Scalar>{2.0, 0.5});
         at::_foreach_copy_(a, x);
         return at::stack(at::_foreach_norm(at::_foreach_mul(a, 3.0), 2));
       },
       false},
      {"fused_adamw",
       {{4}, {3}},
       [](List& x) {
         List p{x[0].clone(), x[1].clone()}, g{x[0] * 2, x[1] * 2}, m{at::zeros({4}), at::zeros({3})},
             v{at::zeros({4}), at::zeros({3})};
         List steps{at::ones({}), at::ones({})};
         at::_fused_adamw_(p, g, m, v, {}, steps, at::full({}, 0.1), 0.9, 0.95, 0.1, 1e-8, false, false);
         return p[0].sum() + p[1].sum() + m[0].sum();
       },
       false},
      {"topk_gradient", {{4, 8}}, [](List& x) { return std::get<0>(x[0].topk(2)); }},
      {"mixture_of_experts",
       {{4, 8}, {8, 3}},
       [](List& x) {
         const auto [values, indices] = at::softmax(x[0], -1).topk(2);
         return values * at::gather(at::matmul(x[0], x[1]), 1, indices.remainder(3));
       }},
      {"convolution", {{2, 3, 8, 8}, {5, 3, 3, 3}, {5}}, [](List& x) { return at::conv2d(x[0], x[1], x[2]); }},
      {"sort_cumsum_where",
       {{4, 8}},
       [](List& x) {
         const Tensor sorted = std::get<0>(x[0].sort(-1));
         return at::where(sorted > 0, sorted.cumsum(-1), sorted).masked_fill(sorted > 1, 0.5).flip({1});
       }},
      {"parameter_used_twice", {{4, 4}}, [](List& x) { return at::matmul(x[0], x[0]) + x[0]; }},
      {"bf16_by_hand",
       {{4, 8}, {6, 8}},
       [](List& x) { return at::linear(x[0].to(at::kBFloat16), x[1].to(at::kBFloat16)).to(at::kFloat); }},
      {"einsum",
       {{2, 3, 4}, {4, 5}},
       [](List& x) {
         return at::einsum("bij,jk->bik", {x[0], x[1]});
       }},
      {"expanded_gradient",
       {{1, 4}},
       [](List& x) {
         return x[0].expand({3, 4}).t() * 2;
       }},
      {"empty_batch", {{0, 4}, {3, 4}}, [](List& x) { return at::linear(x[0], x[1]); }},
      {"padding",
       {{3, 4}},
       [](List& x) {
         return at::constant_pad_nd(x[0], {0, 2}).reshape({2, 9});
       }},
  };
}

std::vector<Probe> Probes() {
  std::vector<Probe> all = ModelProbes();
  for (const auto& more : {ViewProbes(), OtherProbes()}) all.insert(all.end(), more.begin(), more.end());
  return all;
}

class FakeDeviceTest : public ::testing::TestWithParam<Probe> {
 protected:
  void SetUp() override {
    at::set_num_threads(1);
    Outside(3);
  }
};

TEST_P(FakeDeviceTest, CaptureEqualsTheRealRunAndExecutes) {
  List inputs = MakeInputs(GetParam(), true), copies;
  for (const Tensor& x : inputs) copies.push_back(x.detach().clone());
  const Capture real = CaptureOf(GetParam(), &inputs), fake = CaptureOf(GetParam(), nullptr);
  EXPECT_GT(real.trace.OperatorCount(), 0);
  EXPECT_THAT(graph::Differences(real.trace, fake.trace), IsEmpty());
  EXPECT_THAT(graph::Races(fake.trace), IsEmpty());
  EXPECT_THAT(graph::BadReads(fake.trace), IsEmpty());
  EXPECT_THAT(real.trace.warnings, IsEmpty());
  ExpectExecutes(real.trace, copies, real.results);
  ExpectExecutes(fake.trace, copies, real.results);
}

// What the device remembers of a call is what it would work out again.
TEST_P(FakeDeviceTest, ASecondCaptureFromMemoryIsTheSame) {
  FakeDevice device;
  const Trace first = CaptureOf(GetParam(), nullptr, &device).trace;
  EXPECT_THAT(graph::Differences(first, CaptureOf(GetParam(), nullptr, &device).trace), IsEmpty());
}

INSTANTIATE_TEST_SUITE_P(Probes, FakeDeviceTest, ::testing::ValuesIn(Probes()),
                         [](const auto& info) { return std::string(info.param.name); });

// What depends on data cannot be captured, and says which operator it was.
class RefusalTest : public ::testing::Test {
 protected:
  std::string Refusal(const std::function<Tensor(List&)>& function) {
    try {
      CaptureOf({"refused", {{4}}, function}, nullptr);
    } catch (const c10::Error& error) {
      return error.what_without_backtrace();
    }
    return "captured";
  }
};

TEST_F(RefusalTest, HostValues) {
  EXPECT_THAT(Refusal([](List& x) { return x[0] * x[0].sum().item<float>(); }), HasSubstr("aten::_local_scalar_dense"));
  EXPECT_THAT(Refusal([](List& x) { return x[0].sum().gt(0).item<bool>() ? x[0] * 2 : x[0]; }),
              HasSubstr("aten::_local_scalar_dense"));
}

TEST_F(RefusalTest, ShapesFromData) {
  EXPECT_THAT(Refusal([](List& x) { return x[0].index({x[0] > 0}); }), HasSubstr("aten::index.Tensor"));
  EXPECT_THAT(Refusal([](List& x) { return x[0].masked_select(x[0] > 0); }), HasSubstr("aten::masked_select"));
}

TEST_F(RefusalTest, DataWrittenBehindTheDispatcher) {
  EXPECT_THAT(Refusal([](List& x) { return x[0] * at::tensor({1.f, 2.f, 3.f, 4.f}); }), HasSubstr("data is not allocated"));
}

TEST_F(RefusalTest, NamesTheModule) {
  const std::string path = "model.layers.3";
  graph::AnnotationScope<const std::string*> module(&graph::Annotation::module, &path);
  EXPECT_THAT(Refusal([](List& x) { return x[0].nonzero().to(at::kFloat); }), HasSubstr("in module 'model.layers.3'"));
}

TEST_F(RefusalTest, Generators) {
  auto generator = at::detail::createCPUGenerator(1);
  EXPECT_THAT(Refusal([&](List& x) { return x[0] * at::empty({4}).bernoulli_(0.5, generator); }), HasSubstr("random generator"));
}

TEST_F(RefusalTest, TheDeviceIsUsableAfterwards) {
  EXPECT_THAT(Refusal([](List& x) { return x[0].nonzero(); }), HasSubstr("aten::nonzero"));
  EXPECT_EQ(Refusal([](List& x) { return x[0] * 2; }), "captured");
}

// The real run goes on, but its Trace is found out.
TEST(WarningTest, HostValuesAndDataBehindTheDispatcherInARealRun) {
  const Probe probe{"warned", {{3}}, [](List& x) { return x[0] * x[0].sum().item<float>() * at::tensor({1.f, 2.f, 3.f}); }};
  List inputs = MakeInputs(probe, true);
  const Trace trace = CaptureOf(probe, &inputs).trace;
  EXPECT_THAT(trace.warnings, ::testing::ElementsAre(HasSubstr("host value read from aten::_local_scalar_dense")));
  EXPECT_THAT(graph::BadReads(trace), ::testing::Contains(HasSubstr("memory that nothing wrote")));
}

TEST(WarningTest, UnboundTensorsAreKeptWithTheirContents) {
  Outside(32);
  const Probe probe{"unbound", {{32}}, [](List& x) { return x[0] * Outside(32); }};
  List inputs = MakeInputs(probe, true);
  const Capture real = CaptureOf(probe, &inputs);
  EXPECT_THAT(real.trace.warnings, ::testing::ElementsAre(HasSubstr("unbound tensor ?1 of 128 bytes")));
  ExpectExecutes(real.trace, {inputs[0].detach()}, real.results);
  EXPECT_THAT(graph::Differences(real.trace, CaptureOf(probe, nullptr).trace), IsEmpty());
}

TEST(WarningTest, StoragesThatOutliveTheStep) {
  Tensor kept;
  const Probe probe{"kept", {{4}}, [&](List& x) { return kept = x[0] * 2; }, false};
  EXPECT_THAT(CaptureOf(probe, nullptr).trace.warnings, IsEmpty());  // it is the output
  const Probe leaking{"leaking",
                      {{4}},
                      [&](List& x) {
                        kept = x[0] * 2;
                        return kept + 1;
                      },
                      false};
  EXPECT_THAT(CaptureOf(leaking, nullptr).trace.warnings,
              ::testing::ElementsAre(HasSubstr("made by aten::mul.Scalar in '', outlives")));
}

// A constant frozen from a host counter differs from run to run: captures are compared to find it.
TEST(WarningTest, FrozenHostCounterShowsInTheComparison) {
  int step = 0;
  const Probe probe{"counter", {{3}}, [&](List& x) { return x[0] * static_cast<double>(++step); }};
  EXPECT_FALSE(graph::Differences(CaptureOf(probe, nullptr).trace, CaptureOf(probe, nullptr).trace).empty());
}

}  // namespace
}  // namespace legoai::sim
