// The rules for CPU against what LibTorch's kernels really take: the counting allocator's peak during one call, less the results.
#include "simulator/memory/workspace.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <gtest/gtest.h>

#include <functional>
#include <iostream>
#include <tuple>

#include "core/trace/testing/trace_builder.h"
#include "worker/comm/cpu_tensors.h"

namespace legoai::sim {
namespace {

using at::Tensor;
using graph::TraceBuilder;

struct Case {
  std::string name;
  std::vector<TraceBuilder::Arg> arguments;
  TraceBuilder* builder;

  TraceBuilder::Tensor Add(const Tensor& tensor) {
    v1::DType dtype = tensor.scalar_type() == at::kBFloat16 ? v1::BFLOAT16
                      : tensor.scalar_type() == at::kHalf   ? v1::FLOAT16
                      : tensor.scalar_type() == at::kLong   ? v1::INT64
                                                            : v1::FLOAT32;
    return builder->View(builder->AddStorage(tensor.storage().nbytes()), dtype, tensor.sizes().vec(), tensor.strides().vec());
  }
};

int64_t Measure(const std::function<std::vector<Tensor>()>& run) {
  int64_t before = comm::CpuLiveBytes();
  comm::ResetCpuPeakBytes();
  std::vector<Tensor> results = run();
  int64_t peak = comm::CpuPeakBytes() - before, held = comm::CpuLiveBytes() - before;
  return peak - held;
}

int64_t Predict(const std::string& name, const std::vector<c10::IValue>& arguments) {
  TraceBuilder b;
  Case c{name, {}, &b};
  for (const auto& argument : arguments) {
    if (argument.isTensor()) {
      c.arguments.push_back(c.Add(argument.toTensor()));
    } else if (argument.isBool()) {
      c.arguments.push_back(argument.toBool());
    } else if (argument.isTensorList()) {
      TraceBuilder::List list;
      for (const Tensor& tensor : argument.toTensorVector()) list.tensors.push_back(c.Add(tensor));
      c.arguments.push_back(list);
    } else {
      if (argument.isDouble()) {
        c.arguments.push_back(argument.toDouble());
      } else {
        c.arguments.push_back(argument.isInt() ? argument.toInt() : int64_t{0});
      }
    }
  }
  const bool in_place = name.substr(0, name.find('.')).ends_with("_");
  b.Op(name, c.arguments, {}, in_place ? 1 : 0);
  const OperatorRow* row = FindOperator(name);
  EXPECT_NE(row, nullptr) << name;
  return WorkspaceBytes(graph::InstructionView(b.trace(), b.trace().instructions.back()), *row,
                        {v1::CPU, at::get_num_threads(), comm::OneDnnComputesBfloat16()});
}

// Those for which there are rules on this CPU.
std::vector<at::ScalarType> Types() {
  if (comm::CpuKernelsAreKnownForBfloat16()) return {at::kFloat, at::kHalf, at::kBFloat16};
  std::cerr << "this CPU has AVX-512 without AVX512_BF16: no rule for bfloat16 is checked\n";
  return {at::kFloat, at::kHalf};
}

class WorkspaceTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    comm::UseKnownCpuKernels();
    comm::InstallCpuMemoryCounter();
    at::set_num_threads(1);
  }
};

void Check(const std::string& name, const std::vector<c10::IValue>& arguments, const std::function<std::vector<Tensor>()>& run) {
  run();  // what a kernel keeps for good is not its workspace
  int64_t measured = Measure(run), predicted = Predict(name, arguments);
  EXPECT_NEAR(static_cast<double>(measured), static_cast<double>(predicted), 1024 + 0.01 * static_cast<double>(predicted))
      << name;
}

TEST_F(WorkspaceTest, Attention) {
  for (auto dtype : Types()) {
    for (int64_t seq : {64, 200, 800}) {
      for (int64_t dim : {32, 64}) {
        SCOPED_TRACE(testing::Message() << toString(dtype) << " seq " << seq << " dim " << dim);
        auto options = at::TensorOptions().dtype(dtype);
        Tensor q = at::zeros({1, seq, 4, dim}, options).transpose(1, 2), k = at::zeros({1, seq, 2, dim}, options).transpose(1, 2);
        Check("lego::attention", {q, k, k, true, 0.1}, [&]() -> std::vector<Tensor> {
          auto [out, lse] = at::_scaled_dot_product_flash_attention_for_cpu(q, k, k, 0.0, true, std::nullopt, 0.1);
          return {out, lse};
        });
        auto [out, lse] = at::_scaled_dot_product_flash_attention_for_cpu(q, k, k, 0.0, true, std::nullopt, 0.1);
        Tensor o = out, l = lse;
        Check("lego::attention_backward", {o, q, k, k, o, l, true, 0.1}, [&]() -> std::vector<Tensor> {
          auto [a, b, c] =
              at::_scaled_dot_product_flash_attention_for_cpu_backward(o, q, k, k, o, l, 0.0, true, std::nullopt, 0.1);
          return {a, b, c};
        });
      }
    }
  }
}

// As of the second half of a rank's tokens when a ring passes keys on: its gradient is part of a longer one.
TEST_F(WorkspaceTest, AttentionOfAPartOfASequence) {
  for (auto dtype : Types()) {
    for (int64_t batch : {1, 2}) {
      SCOPED_TRACE(testing::Message() << toString(dtype) << " batch " << batch);
      auto whole = [&](int64_t heads) { return at::zeros({batch, 128, heads, 32}, at::TensorOptions().dtype(dtype)); };
      Tensor q = whole(4).transpose(1, 2).narrow(2, 64, 64), k = whole(2).transpose(1, 2);
      auto [out, lse] = at::_scaled_dot_product_flash_attention_for_cpu(q, k, k, 0.0, false, std::nullopt, 0.1);
      Tensor o = out, l = lse, gradient = q;
      Check("lego::attention_backward", {gradient, q, k, k, o, l, false, 0.1}, [&]() -> std::vector<Tensor> {
        auto [a, b, c] =
            at::_scaled_dot_product_flash_attention_for_cpu_backward(gradient, q, k, k, o, l, 0.0, false, std::nullopt, 0.1);
        return {a, b, c};
      });
    }
  }
}

std::vector<Tensor> CallWindow(const char* name, std::vector<c10::IValue> stack) {
  c10::Dispatcher::singleton().findSchemaOrThrow(name, "window").callBoxed(stack);
  std::vector<Tensor> results;
  for (const c10::IValue& value : stack) results.push_back(value.toTensor());
  return results;
}

TEST_F(WorkspaceTest, AttentionWithAWindow) {
  for (auto dtype : Types()) {
    for (const auto& [batch, seq, window] : std::vector<std::tuple<int64_t, int64_t, int64_t>>{
             {2, 40, 5}, {2, 64, 16}, {1, 200, 30}, {2, 200, 30}, {2, 300, 299}, {1, 900, 700}}) {
      SCOPED_TRACE(testing::Message() << toString(dtype) << " batch " << batch << " seq " << seq << " window " << window);
      auto options = at::TensorOptions().dtype(dtype);
      Tensor q = at::zeros({batch, seq, 4, 32}, options).transpose(1, 2);
      Tensor k = at::zeros({batch, seq, 2, 32}, options).transpose(1, 2);
      const std::vector<c10::IValue> forward = {q, k, k, window, 0.1};
      Check("lego::attention.window", forward, [&] { return CallWindow("lego::attention", forward); });
      const auto out = CallWindow("lego::attention", forward);
      const std::vector<c10::IValue> backward = {out[0], q, k, k, out[0], out[1], window, 0.1};
      Check("lego::attention_backward.window", backward, [&] { return CallWindow("lego::attention_backward", backward); });
    }
  }
}

// By hand, from what PyTorch's sources allocate (workspace.cc names them): 2 sequences of 256 tokens, 4 query heads of 64.
TEST_F(WorkspaceTest, AttentionOnCudaTakesTheKernelOfItsType) {
  constexpr int64_t kQuery = 2 * 4 * 256 * 64, kRows = 2 * 4 * 256;
  auto bytes = [](const char* name, v1::DType dtype, int64_t kv_heads) {
    TraceBuilder b;
    auto q = b.New(dtype, {2, 4, 256, 64}), k = b.New(dtype, {2, kv_heads, 256, 64}), lse = b.New(v1::FLOAT32, {2, 4, 256});
    if (std::string(name) == "lego::attention") {
      b.Op(name, {q, k, k, true, 0.1}, {});
    } else {
      b.Op(name, {q, q, k, k, q, lse, true, 0.1}, {});
    }
    return WorkspaceBytes(graph::InstructionView(b.trace(), b.trace().instructions.back()), *FindOperator(name), {v1::CUDA, 1});
  };
  for (const int64_t kv_heads : {4, 2}) EXPECT_EQ(bytes("lego::attention", v1::BFLOAT16, kv_heads), 0);
  EXPECT_EQ(bytes("lego::attention", v1::FLOAT32, 4), 0);
  EXPECT_EQ(bytes("lego::attention", v1::FLOAT32, 2), 2 * kQuery * 4);  // keys and values of four heads
  EXPECT_EQ(bytes("lego::attention_backward", v1::BFLOAT16, 4), kQuery * 4 + kRows * 4);
  EXPECT_EQ(bytes("lego::attention_backward", v1::BFLOAT16, 2), kQuery * 4 + kRows * 4 + 2 * kQuery * 2);
  // Blocks of 128 rows with 16 bytes in front of each, and delta; the product of fp32 output and gradient is as large.
  const int64_t alone = std::max(kQuery * 4 + 2 * kRows * 4, kQuery * 4 + kRows / 128 * 16 + kRows * 4);
  EXPECT_EQ(bytes("lego::attention_backward", v1::FLOAT32, 4), alone);
  // Four tensors of all heads, where the results are two of half of them.
  EXPECT_EQ(bytes("lego::attention_backward", v1::FLOAT32, 2), alone + 4 * kQuery * 4 - 2 * (kQuery / 2) * 4);
}

// By hand, on any CPU: what oneDNN takes where it computes bfloat16, and what is left where it does not.
TEST_F(WorkspaceTest, BlocksOfProductsAreThoseOfOneDnn) {
  auto bytes = [](const char* name, bool onednn) {
    TraceBuilder b;
    auto q = b.New(v1::BFLOAT16, {1, 4, 64, 32}), k = b.New(v1::BFLOAT16, {1, 2, 64, 32}), lse = b.New(v1::FLOAT32, {1, 4, 64});
    auto left = b.New(v1::BFLOAT16, {16, 32}), right = b.New(v1::BFLOAT16, {32, 16});
    if (std::string(name) == "aten::mm") {
      b.Op(name, {left, right}, {});
    } else {
      b.Op(name, {q, q, k, k, q, lse, true, 0.1}, {});
    }
    const graph::InstructionView op(b.trace(), b.trace().instructions.back());
    return WorkspaceBytes(op, *FindOperator(name), {v1::CPU, 2, onednn});
  };
  EXPECT_EQ(bytes("aten::mm", true), 16 * 16 * 4 + 32 * 64 * 2 + 1024);
  EXPECT_EQ(bytes("aten::mm", false), 0);
  // 32 rows of scores of 64 keys for each of two threads: probabilities and gradients in fp32 and in bfloat16, and row sums; and
  // a copy of the output's gradient, whose heads lie apart. The product is [64, 32] x [32, 32], its left operand transposed.
  constexpr int64_t kRows = 32, kKeys = 64;
  const int64_t own = 4 * 64 * 32 * 2 + 2 * ((2 * kRows * kKeys + kRows) * 4 + 2 * kRows * kKeys * 2);
  EXPECT_EQ(bytes("lego::attention_backward", false), own);
  EXPECT_EQ(bytes("lego::attention_backward", true), own + 2 * (64 * 32 * 4 + 32 * 64 * 2 + 1024 + 64 * 32 * 2 + 128));
}

TEST_F(WorkspaceTest, Norms) {
  for (auto dtype : Types()) {
    auto options = at::TensorOptions().dtype(dtype);
    Tensor x = at::zeros({6, 32, 48}, options), w = at::zeros({48}, options);
    auto [y, mean, rstd] = at::native_layer_norm(x, {48}, w, w, 1e-5);
    Tensor m = mean, r = rstd;
    Check("aten::native_layer_norm", {x, 48, w, w, 1e-5}, [&]() -> std::vector<Tensor> {
      auto [a, b, c] = at::native_layer_norm(x, {48}, w, w, 1e-5);
      return {a, b, c};
    });
    Check("aten::native_layer_norm_backward", {x, x, 48, m, r, w, w}, [&]() -> std::vector<Tensor> {
      auto [a, b, c] = at::native_layer_norm_backward(x, x, {48}, m, r, w, w, {true, true, true});
      return {a, b, c};
    });
  }
}

TEST_F(WorkspaceTest, Products) {
  for (auto dtype : Types()) {
    auto options = at::TensorOptions().dtype(dtype);
    for (int64_t n : {16, 48, 200, 256}) {
      SCOPED_TRACE(testing::Message() << toString(dtype) << " " << n);
      Tensor a = at::zeros({n, 2 * n}, options), b = at::zeros({2 * n, n}, options), c = at::zeros({n}, options);
      Tensor batch_a = at::zeros({3, n, 2 * n}, options), batch_b = batch_a.transpose(1, 2),
             batch_c = at::zeros({3, n, n}, options);
      auto one = [&](const std::string& name, const std::vector<c10::IValue>& arguments, const std::function<Tensor()>& run) {
        Check(name, arguments, [&]() -> std::vector<Tensor> { return {run()}; });
      };
      one("aten::mm", {a, b}, [&] { return at::mm(a, b); });
      one("aten::mm", {a, a.t()}, [&] { return at::mm(a, a.t()); });
      one("aten::mm", {b.t(), b}, [&] { return at::mm(b.t(), b); });
      one("aten::mm", {b.t(), a.t()}, [&] { return at::mm(b.t(), a.t()); });
      one("aten::addmm", {c, a, b}, [&] { return at::addmm(c, a, b); });
      one("aten::bmm", {batch_a, batch_b}, [&] { return at::bmm(batch_a, batch_b); });
      one("aten::baddbmm", {batch_c, batch_a, batch_b}, [&] { return at::baddbmm(batch_c, batch_a, batch_b); });
    }
    // Larger ones within half.
    Tensor tokens = at::zeros({2048, 256}, options), grad = at::zeros({2048, 1024}, options);
    int64_t measured = Measure([&]() -> std::vector<Tensor> { return {at::mm(grad.t(), tokens)}; });
    int64_t predicted = Predict("aten::mm", {grad.t(), tokens});
    EXPECT_GE(predicted, measured / 2);
    EXPECT_LE(predicted, measured * 3 / 2);
  }
}

TEST_F(WorkspaceTest, ArithmeticOfTwoTypesTakesCasts) {
  Tensor wide = at::zeros({64, 32}), narrow = at::zeros({64, 32}, at::kBFloat16), row = at::zeros({32}, at::kBFloat16),
         half = at::zeros({64, 32}, at::kHalf), column = at::zeros({32, 64}, at::kBFloat16).t(),
         number = at::ones({}, at::kBFloat16);
  for (const Tensor& other : {wide, narrow, row, half, column, number, row.view({1, 32}), row.expand({64, 32})}) {
    for (const Tensor& self : {wide, narrow}) {
      SCOPED_TRACE(testing::Message() << self.toString() << " " << self.sizes() << ", " << other.toString() << " "
                                      << other.sizes());
      auto exactly = [&](const char* name, const std::function<Tensor()>& run) {
        run();
        EXPECT_EQ(Measure([&]() -> std::vector<Tensor> { return {run()}; }), Predict(name, {self, other})) << name;
      };
      exactly("aten::add.Tensor", [&] { return at::add(self, other); });
      exactly("aten::mul.Tensor", [&] { return at::mul(self, other); });
      exactly("aten::sub.Tensor", [&] { return at::sub(self, other); });
      exactly("aten::div.Tensor", [&] { return at::div(self, other); });
      exactly("aten::maximum", [&] { return at::maximum(self, other); });
      exactly("aten::add_.Tensor", [&] { return self.add_(other); });
      exactly("aten::mul_.Tensor", [&] { return self.mul_(other); });
    }
  }
}

TEST_F(WorkspaceTest, ANumberBesideATensorIsATensorToo) {
  const auto exactly = [](const char* name, const Tensor& tensor, const c10::IValue& number, const std::function<Tensor()>& run) {
    run();
    EXPECT_EQ(Measure([&]() -> std::vector<Tensor> { return {run()}; }), Predict(name, {tensor, number}))
        << name << " " << tensor.toString() << " " << tensor.sizes();
  };
  for (const auto dtype : {at::kFloat, at::kBFloat16, at::kHalf}) {
    for (const Tensor& x : {at::ones({}, dtype), at::ones({64, 32}, dtype)}) {
      exactly("aten::mul.Scalar", x, 0.5, [&] { return at::mul(x, 0.5); });
      exactly("aten::mul_.Scalar", x, 1.5, [&] { return x.mul_(1.5); });
      exactly("aten::div.Scalar", x, 3.0, [&] { return at::div(x, 3.0); });
      exactly("aten::add.Scalar", x, 1.0, [&] { return at::add(x, 1.0); });
      exactly("aten::sub.Scalar", x, 2, [&] { return at::sub(x, 2); });
      exactly("aten::lt.Scalar", x, 1.0, [&] { return at::lt(x, 1.0); });
    }
  }
  const Tensor ids = at::ones({64}, at::kLong);
  exactly("aten::sub.Scalar", ids, 2, [&] { return at::sub(ids, 2); });
  exactly("aten::ge.Scalar", ids, 2, [&] { return at::ge(ids, 2); });
}

TEST_F(WorkspaceTest, TheRestTakesNothing) {
  for (auto dtype : Types()) {
    auto options = at::TensorOptions().dtype(dtype);
    Tensor x = at::zeros({4, 64, 96}, options), flat = x.view({256, 96}), ids = at::zeros({4, 64}, at::kLong),
           row = at::zeros({96}, options);
    Tensor targets = ids.view({256}), column = targets.view({256, 1}), weight = at::zeros({100, 96}, options);
    auto one = [&](const std::string& name, const std::vector<c10::IValue>& arguments, const std::function<Tensor()>& run) {
      Check(name, arguments, [&]() -> std::vector<Tensor> { return {run()}; });
    };
    one("aten::embedding", {weight, ids}, [&] { return at::embedding(weight, ids); });
    one("aten::embedding_dense_backward", {x, ids}, [&] { return at::embedding_dense_backward(x, ids, 100, -1, false); });
    one("aten::silu", {x}, [&] { return at::silu(x); });
    one("aten::silu_backward", {x, x}, [&] { return at::silu_backward(x, x); });
    one("aten::gelu", {x}, [&] { return at::gelu(x, "tanh"); });
    one("aten::gelu_backward", {x, x}, [&] { return at::gelu_backward(x, x, "tanh"); });
    one("aten::roll", {x}, [&] { return at::roll(x, {48}, {2}); });
    one("aten::addcmul", {x, x, row}, [&] { return at::addcmul(x, x, row); });
    one("aten::mul.Tensor", {x, row}, [&] { return at::mul(x, row); });
    one("aten::add.Tensor", {x, x}, [&] { return at::add(x, x); });
    one("aten::sum.dim_IntList", {flat}, [&] { return at::sum(flat, {0}); });
    one("aten::sum.dim_IntList", {flat}, [&] { return at::sum(flat, {1}); });
    one("aten::sum", {flat}, [&] { return at::sum(flat); });
    one("aten::amax", {flat}, [&] { return at::amax(flat, {-1}, true); });
    one("aten::cat", {std::vector<Tensor>{x, x}}, [&] { return at::cat({x, x}, 1); });
    one("aten::_softmax", {x}, [&] { return at::_softmax(x, -1, false); });
    one("aten::_softmax_backward_data", {x, x}, [&] { return at::_softmax_backward_data(x, x, -1, dtype); });
    one("aten::_log_softmax", {flat}, [&] { return at::_log_softmax(flat, -1, false); });
    one("aten::_log_softmax_backward_data", {flat, flat}, [&] { return at::_log_softmax_backward_data(flat, flat, -1, dtype); });
    Tensor source = at::zeros({256, 1}, options), negative = column.lt(0);
    one("aten::masked_fill_", {source, column}, [&] { return source.masked_fill_(negative, 0); });
    one("aten::clone", {x.transpose(0, 1)}, [&] { return x.transpose(0, 1).contiguous(); });
    one("aten::_to_copy", {x}, [&] { return x.to(dtype == at::kFloat ? at::kBFloat16 : at::kFloat); });
    one("aten::pow", {x}, [&] { return at::pow(x, 2); });
    Check("aten::nll_loss_forward", {flat, targets}, [&]() -> std::vector<Tensor> {
      auto [loss, total] = at::nll_loss_forward(flat, targets, {}, at::Reduction::Sum, -100);
      return {loss, total};
    });
    auto [loss, total] = at::nll_loss_forward(flat, targets, {}, at::Reduction::Sum, -100);
    Tensor l = loss, t = total;
    one("aten::nll_loss_backward", {l, flat, targets},
        [&] { return at::nll_loss_backward(l, flat, targets, {}, at::Reduction::Sum, -100, t); });
    std::vector<Tensor> list{x, weight};
    Check("aten::_foreach_norm", {list, 2}, [&] { return at::_foreach_norm(list, 2); });
    Tensor factor = at::ones({}, options);
    Check("aten::_foreach_mul_", {list, factor}, [&]() -> std::vector<Tensor> {
      at::_foreach_mul_(list, factor);
      return {};
    });
  }
  Tensor x = at::zeros({256, 96}), column = at::zeros({256, 1}, at::kLong), source = at::zeros({256, 1});
  Check("aten::gather", {x, 1, column}, [&]() -> std::vector<Tensor> { return {at::gather(x, 1, column)}; });
  Check("aten::scatter_add_", {x, 1, column, source},
        [&]() -> std::vector<Tensor> { return {x.scatter_add_(1, column, source)}; });
  std::vector<Tensor> p{at::zeros({64, 96})}, g{at::zeros({64, 96})}, m{at::zeros({64, 96})}, v{at::zeros({64, 96})},
      s{at::ones({})};
  Tensor lr = at::ones({});
  Check("aten::_fused_adamw_.tensor_lr", {p, g, m, v}, [&]() -> std::vector<Tensor> {
    at::_fused_adamw_(p, g, m, v, {}, s, lr, 0.9, 0.95, 0.1, 1e-8, false, false);
    return {};
  });
}

}  // namespace
}  // namespace legoai::sim
