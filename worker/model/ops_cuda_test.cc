// The operators on a GPU against the same on the CPU. Skipped where there is none.
#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <functional>
#include <tuple>
#include <vector>

#include "worker/comm/cuda_plugin.h"
#include "worker/model/ops.h"

namespace legoai::model {
namespace {

class OpsCudaTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto plugin = comm::LoadCudaPlugin("worker/comm/cuda/liblegoai_cuda.so");
    if (!plugin.ok()) GTEST_SKIP() << plugin.status();
    ASSERT_TRUE((*plugin)->select_device(0).ok());
    at::manual_seed(7);
  }

  using Function = std::function<at::Tensor(const std::vector<at::Tensor>&)>;

  // Result and gradients of `function` on both devices, max |a - b| / max |b|.
  static void ExpectNear(const Function& function, const std::vector<at::Tensor>& inputs, double tolerance) {
    const auto cpu = Run(function, inputs, at::kCPU), cuda = Run(function, inputs, at::kCUDA);
    for (size_t i = 0; i < cpu.size(); ++i) {
      ASSERT_EQ(cuda[i].sizes(), cpu[i].sizes());
      ASSERT_EQ(cuda[i].scalar_type(), cpu[i].scalar_type());
      const at::Tensor a = cuda[i].cpu().to(at::kDouble), b = cpu[i].to(at::kDouble);
      EXPECT_LE((a - b).abs().max().item<double>(), tolerance * b.abs().max().item<double>()) << "result " << i;
    }
  }

  static std::vector<at::Tensor> Run(const Function& function, const std::vector<at::Tensor>& inputs, at::DeviceType device) {
    std::vector<at::Tensor> moved;
    for (const at::Tensor& input : inputs) moved.push_back(input.to(device).detach().set_requires_grad(true));
    const at::Tensor out = function(moved);
    std::vector<at::Tensor> results = torch::autograd::grad({out}, moved, {at::cos(out.detach())});
    results.push_back(out.detach());
    return results;
  }
};

TEST_F(OpsCudaTest, StochasticRoundingEqualsTheCpusBitByBit) {
  using Signature = at::Tensor&(at::Tensor&, const at::Tensor&, const at::Tensor&, int64_t, int64_t, int64_t);
  const auto op = c10::Dispatcher::singleton().findSchemaOrThrow("lego::round_stochastically_", "").typed<Signature>();
  const at::Tensor value = at::randn({33, 1001}), rng = at::arange(5, 7, at::kLong);
  at::Tensor cpu = at::zeros({33, 1001}, at::kBFloat16), cuda = cpu.cuda();
  op.call(cpu, value, rng, 77, 3, 2000);
  op.call(cuda, value.cuda(), rng.cuda(), 77, 3, 2000);
  EXPECT_TRUE(at::equal(cuda.cpu(), cpu));
}

TEST_F(OpsCudaTest, DropoutEqualsTheCpusBitByBit) {
  const at::Tensor rng = at::arange(5, 7, at::kLong),
                   samples = at::arange((int64_t{1} << 32) - 2, (int64_t{1} << 32) + 2, at::kLong);
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16, at::kHalf}) {
    for (const int64_t size : {1, 5, 300, 70001}) {
      const at::Tensor x = at::randn({4, size}).to(dtype);
      const at::Tensor cuda = DropoutFunction(x.cuda(), rng.cuda(), samples.cuda(), 9, 0.1);
      EXPECT_TRUE(at::equal(cuda.cpu(), DropoutFunction(x, rng, samples, 9, 0.1))) << dtype << " " << size;
    }
  }
}

TEST_F(OpsCudaTest, RmsNormIsNearTheCpus) {
  const Function norm = [](const std::vector<at::Tensor>& in) { return RmsNormFunction(in[0], in[1], 1e-5); };
  ExpectNear(norm, {at::randn({3, 5, 96}), at::randn({96})}, 1e-5);
  ExpectNear(norm, {at::randn({3, 5, 96}).to(at::kBFloat16), at::randn({96}).to(at::kBFloat16)}, 3e-2);
}

TEST_F(OpsCudaTest, AttentionIsNearTheCpus) {
  const Function attend = [](const std::vector<at::Tensor>& in) {
    return AttentionFunction(in[0].transpose(1, 2), in[1].transpose(1, 2), in[2].transpose(1, 2), /*causal=*/true, 0.3);
  };
  for (const int64_t kv_heads : {4, 2}) {
    const std::vector<at::Tensor> inputs = {at::randn({2, 33, 4, 16}), at::randn({2, 33, kv_heads, 16}),
                                            at::randn({2, 33, kv_heads, 16})};
    ExpectNear(attend, inputs, 1e-4);
    std::vector<at::Tensor> halves;
    for (const at::Tensor& input : inputs) halves.push_back(input.to(at::kBFloat16));
    ExpectNear(attend, halves, 5e-2);
  }
}

// The result and the three gradients of lego::attention.
std::vector<at::Tensor> Attend(int64_t kv_heads, at::TensorOptions options) {
  using at::Tensor;
  using Forward = std::tuple<Tensor, Tensor>(const Tensor&, const Tensor&, const Tensor&, bool, double);
  using Backward = std::tuple<Tensor, Tensor, Tensor>(const Tensor&, const Tensor&, const Tensor&, const Tensor&, const Tensor&,
                                                      const Tensor&, bool, double);
  auto& operators = c10::Dispatcher::singleton();
  const auto forward = operators.findSchemaOrThrow("lego::attention", "").typed<Forward>();
  const auto backward = operators.findSchemaOrThrow("lego::attention_backward", "").typed<Backward>();
  auto make = [&](int64_t heads) { return at::zeros({2, 33, heads, 16}, options).transpose(1, 2); };
  const Tensor q = make(4), k = make(kv_heads), v = make(kv_heads);
  const auto [out, lse] = forward.call(q, k, v, true, 0.3);
  const auto [grad_q, grad_k, grad_v] = backward.call(out, q, k, v, out, lse, true, 0.3);
  return {out, grad_q, grad_k, grad_v};
}

// A capture takes Meta's word for what later operators find.
TEST_F(OpsCudaTest, AttentionLiesAsMetaSays) {
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    for (const int64_t kv_heads : {4, 2}) {
      SCOPED_TRACE(testing::Message() << dtype << ", " << kv_heads << " heads of keys");
      const auto cuda = Attend(kv_heads, at::device(at::kCUDA).dtype(dtype));
      const auto meta = Attend(kv_heads, at::device(at::kMeta).dtype(dtype));
      for (size_t i = 0; i < cuda.size(); ++i) {
        EXPECT_EQ(cuda[i].sizes(), meta[i].sizes()) << "result " << i;
        EXPECT_EQ(cuda[i].strides(), meta[i].strides()) << "result " << i;
        EXPECT_EQ(cuda[i].scalar_type(), meta[i].scalar_type()) << "result " << i;
      }
    }
  }
}

TEST_F(OpsCudaTest, HeadsThatNoKernelTakesAreRefusedByName) {
  const at::Tensor q = at::randn({1, 2, 8, 6}).cuda();
  EXPECT_THROW(AttentionFunction(q, q, q, true, 0.3), c10::Error);
}

}  // namespace
}  // namespace legoai::model
