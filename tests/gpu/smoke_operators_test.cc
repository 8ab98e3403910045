// Every operator of ours on a GPU against the CPU's. The list is the dispatcher's, so that a new one cannot be forgotten.
#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <gmock/gmock.h>

#include <functional>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "tests/gpu/gpu_test.h"
#include "worker/comm/ops.h"
#include "worker/model/ops.h"

namespace legoai::gpu {
namespace {

using at::Tensor;
using Tensors = std::vector<Tensor>;

template <class Signature>
c10::TypedOperatorHandle<Signature> Find(const char* name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "").typed<Signature>();
}

// Inputs are drawn on the CPU, the same for every device and type.
class Inputs {
 public:
  Inputs(at::DeviceType device, at::ScalarType dtype)
      : device_(device), dtype_(dtype), generator_(at::make_generator<at::CPUGeneratorImpl>(7)) {}
  Tensor Draw(at::IntArrayRef sizes) { return at::randn(sizes, generator_).to(at::kBFloat16).to(dtype_).to(device_); }
  Tensor Integers(const Tensor& values) const { return values.to(device_); }

 private:
  at::DeviceType device_;
  at::ScalarType dtype_;
  at::Generator generator_;
};

constexpr int64_t kWidths[] = {8, 96, 2048}, kRows[] = {1, 37, 257};

Tensors RmsNorm(Inputs in) {
  static const auto op = Find<std::tuple<Tensor, Tensor>(const Tensor&, const Tensor&, double)>("lego::rms_norm");
  Tensors results;
  for (int64_t width : kWidths) {
    for (int64_t rows : kRows) {
      auto [out, rstd] = op.call(in.Draw({rows, width}), in.Draw({width}), 1e-5);
      results.insert(results.end(), {out, rstd});
    }
  }
  return results;
}

Tensors RmsNormBackward(Inputs in) {
  static const auto forward = Find<std::tuple<Tensor, Tensor>(const Tensor&, const Tensor&, double)>("lego::rms_norm");
  static const auto op =
      Find<std::tuple<Tensor, Tensor>(const Tensor&, const Tensor&, const Tensor&, const Tensor&)>("lego::rms_norm_backward");
  Tensors results;
  for (int64_t width : kWidths) {
    for (int64_t rows : kRows) {
      const Tensor x = in.Draw({rows, width}), weight = in.Draw({width}), grad = in.Draw({rows, width});
      auto [grad_x, grad_weight] = op.call(grad, x, weight, std::get<1>(forward.call(x, weight, 1e-5)));
      results.insert(results.end(), {grad_x, grad_weight});
    }
  }
  return results;
}

struct Attended {
  Tensor q, k, v, out, lse;
};

// [batch, heads, seq, head_dim] that lie by sequence, as models make them.
template <class F>
void ForEachAttention(Inputs in, F visit) {
  static const auto op =
      Find<std::tuple<Tensor, Tensor>(const Tensor&, const Tensor&, const Tensor&, bool, double)>("lego::attention");
  for (const auto& [heads, kv_heads] : std::vector<std::pair<int64_t, int64_t>>{{4, 4}, {4, 2}, {6, 1}}) {
    for (const int64_t head_dim : {8, 64, 128}) {
      for (const bool causal : {true, false}) {
        const auto make = [&, head_dim = head_dim](int64_t n) { return in.Draw({2, 65, n, head_dim}).transpose(1, 2); };
        Attended a{make(heads), make(kv_heads), make(kv_heads), {}, {}};
        std::tie(a.out, a.lse) = op.call(a.q, a.k, a.v, causal, 0.3);
        visit(a, causal);
      }
    }
  }
}

// Of lse, which lies and is padded as each device likes, only that it is there: attention_backward reads it.
Tensors Attention(Inputs in) {
  Tensors results;
  ForEachAttention(in, [&](const Attended& a, bool) { results.push_back(a.out); });
  return results;
}

Tensors AttentionBackward(Inputs in) {
  static const auto op =
      Find<std::tuple<Tensor, Tensor, Tensor>(const Tensor&, const Tensor&, const Tensor&, const Tensor&, const Tensor&,
                                              const Tensor&, bool, double)>("lego::attention_backward");
  Tensors results;
  ForEachAttention(in, [&](const Attended& a, bool causal) {
    auto [q, k, v] = op.call(at::cos(a.out), a.q, a.k, a.v, a.out, a.lse, causal, 0.3);
    results.insert(results.end(), {q, k, v});
  });
  return results;
}

Tensors Dropout(Inputs in) {
  static const auto op =
      Find<Tensor(const Tensor&, const Tensor&, const Tensor&, int64_t, double, int64_t, at::IntArrayRef)>("lego::dropout");
  const Tensor rng = in.Integers(at::arange(5, 7, at::kLong)),
               samples = in.Integers(at::arange((int64_t{1} << 32) - 2, (int64_t{1} << 32) + 2, at::kLong));
  Tensors results;
  for (const int64_t size : {1, 5, 300, 70001}) {
    for (const double p : {0.1, 0.9}) results.push_back(op.call(in.Draw({4, size}), rng, samples, 9, p, size == 5 ? 7 : 0, {}));
  }
  results.push_back(op.call(in.Draw({4, 300}), rng, samples, 9, 0.3, 5, {50, 2, 101, 1003}));  // six runs
  return results;
}

// Thirds, which bf16 does not hold.
Tensors RoundStochastically(Inputs in) {
  static const auto op =
      Find<Tensor&(Tensor&, const Tensor&, const Tensor&, int64_t, int64_t, int64_t)>("lego::round_stochastically_");
  const Tensor rng = in.Integers(at::arange(5, 7, at::kLong));
  Tensors results;
  for (const std::vector<int64_t>& sizes : {std::vector<int64_t>{1}, {1001}, {33, 70}}) {
    const Tensor value = in.Draw(sizes).to(at::kFloat) / 3;
    Tensor self = at::zeros_like(value, at::kBFloat16);
    results.push_back(op.call(self, value, rng, 77, 3, 2000));
  }
  return results;
}

struct Tried {
  std::function<Tensors(Inputs)> run;
  // Largest difference from the CPU's, of the largest value.
  double fp32, bf16;
};

// fp32: both sum up to 2048 (norms) or 65 x 128 (attention) products in orders of their own, 2^-24 apart at each of about the
// root of as many steps; attention multiplies by parts of three (fast fp32), and its backward divides small differences. bf16
// keeps 8 bits: a result is rounded by 2^-9, and what stands behind several roundings (probabilities before they meet v, their
// gradients before they meet q and k, sums over rows that a device keeps in bf16 for a while) by a few of them. Dropout and
// stochastic rounding draw by integers: nothing may differ.
const std::map<std::string, Tried>& Computing() {
  static const std::map<std::string, Tried> tried = {
      {"lego::rms_norm", {RmsNorm, 1e-5, 1e-2}},    {"lego::rms_norm_backward", {RmsNormBackward, 2e-5, 2e-2}},
      {"lego::attention", {Attention, 1e-5, 2e-2}}, {"lego::attention_backward", {AttentionBackward, 1e-4, 5e-2}},
      {"lego::dropout", {Dropout, 0, 0}},           {"lego::round_stochastically_", {RoundStochastically, 0, 0}},
  };
  return tried;
}

// Tried in a group of one below, with NCCL in nccl_test.cc.
const std::set<std::string>& Communicating() {
  static const std::set<std::string> names = {"lego::all_gather_into",
                                              "lego::reduce_scatter_into",
                                              "lego::all_reduce_",
                                              "lego::all_to_all_into",
                                              "lego::rotate_into",
                                              "lego::broadcast_",
                                              "lego::send",
                                              "lego::recv",
                                              "lego::resize_storage_",
                                              "lego::record_event",
                                              "lego::wait_event"};
  return names;
}

TEST(SmokeOperatorsList, EveryOperatorOfOursIsTried) {
  std::set<std::string> registered, tried = Communicating();
  for (const c10::OperatorName& name : c10::Dispatcher::singleton().getAllOpNames()) {
    if (name.name.rfind("lego::", 0) == 0) registered.insert(name.name);
  }
  for (const auto& [name, _] : Computing()) tried.insert(name);
  tried.insert("lego::fused");  // smoke_fused_test.cc
  EXPECT_THAT(registered, ::testing::ContainerEq(tried));
}

TEST(SmokeOperatorsList, EachHasAKernelOfItsOwnOnCuda) {
  if (!CudaKernelsAreKnown()) GTEST_SKIP() << "CUDA's libraries cannot be loaded here";
  for (const auto& [name, _] : Computing()) {
    EXPECT_TRUE(c10::Dispatcher::singleton().findSchemaOrThrow(name.c_str(), "").hasKernelForDispatchKey(c10::DispatchKey::CUDA))
        << name;
  }
}

class SmokeOperators : public GpuTest {};

TEST_F(SmokeOperators, EachComputesWhatTheCpuDoes) {
  for (const auto& [name, tried] : Computing()) {
    for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
      const Tensors cuda = tried.run(Inputs(at::kCUDA, dtype)), cpu = tried.run(Inputs(at::kCPU, dtype));
      const double tolerance = dtype == at::kFloat ? tried.fp32 : tried.bf16;
      ASSERT_EQ(cuda.size(), cpu.size()) << name;
      double largest = 0;
      for (size_t i = 0; i < cuda.size(); ++i) {
        const double difference = Difference(cuda[i], cpu[i]);
        largest = std::max(largest, difference);
        EXPECT_LE(difference, tolerance) << name << " " << dtype << " result " << i << " " << cpu[i].sizes();
      }
      std::printf("%s %s: differs by %.2g at most, %.2g allowed\n", name.c_str(), c10::toString(dtype), largest, tolerance);
    }
  }
}

TEST_F(SmokeOperators, CollectivesOfAGroupOfOneCopyDeviceMemory) {
  auto runtime = RuntimeOfOne(*plugin_);
  comm::RuntimeScope scope(runtime.get());
  const int64_t group = runtime->GroupId(mesh::Dim::kDpShard);
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16, at::kLong}) {
    const Tensor in = at::arange(1000, at::TensorOptions().dtype(dtype).device(at::kCUDA));
    const auto expect_copy = [&](const char* what, const std::function<void(const Tensor&)>& call) {
      const Tensor out = at::zeros_like(in);
      call(out);
      EXPECT_TRUE(at::equal(out, in)) << what << " " << dtype;
    };
    expect_copy("all_gather", [&](const Tensor& out) { comm::AllGatherInto(out, in, group); });
    expect_copy("reduce_scatter", [&](const Tensor& out) { comm::ReduceScatterInto(out, in, group); });
    expect_copy("all_to_all", [&](const Tensor& out) { comm::AllToAllInto(out, in, group); });
    expect_copy("rotate", [&](const Tensor& out) { comm::RotateInto(out, in, group); });
    const Tensor kept = in.clone();
    comm::AllReduce(kept, group);
    comm::AllReduce(kept, group, comm::ReduceOp::kMax);
    comm::Broadcast(kept, group, 0);
    EXPECT_TRUE(at::equal(kept, in));
    EXPECT_THROW(comm::Send(in, group, 0), c10::Error);
    EXPECT_THROW(comm::Recv(kept, group, 0), c10::Error);
  }
  EXPECT_TRUE(runtime->Drain().ok());
}

}  // namespace
}  // namespace legoai::gpu
