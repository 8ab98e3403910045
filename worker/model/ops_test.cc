#include "worker/model/ops.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>
#include <vector>

namespace legoai::model {
namespace {

at::Tensor Random(at::IntArrayRef sizes, at::ScalarType dtype = at::kFloat) { return at::randn(sizes).to(dtype); }

// max |a - b| / max |b|.
double Error(const at::Tensor& a, const at::Tensor& b) {
  return ((a.to(at::kDouble) - b.to(at::kDouble)).abs().max() / b.to(at::kDouble).abs().max()).item<double>();
}

std::vector<at::Tensor> Gradients(const at::Tensor& out, const at::Tensor& grad, const std::vector<at::Tensor>& inputs) {
  return torch::autograd::grad({out}, inputs, {grad});
}

class OpsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    at::set_num_threads(1);
    at::manual_seed(7);
  }
};

// Of doubles, by ATen's elementary operators and their autograd.
at::Tensor RmsNormOracle(const at::Tensor& x, const at::Tensor& weight, double eps) {
  return x * at::rsqrt(at::mean(x * x, {-1}, true) + eps) * weight;
}

TEST_F(OpsTest, RmsNormEqualsItsDefinitionAndGradient) {
  for (auto [dtype, tolerance] : {std::pair{at::kFloat, 2e-6}, std::pair{at::kBFloat16, 1e-2}, std::pair{at::kHalf, 2e-3}}) {
    for (int64_t dim : {1, 15, 16, 37, 256, 1030}) {
      at::Tensor x = Random({3, 5, dim}, dtype).set_requires_grad(true), w = Random({dim}, dtype).set_requires_grad(true);
      at::Tensor grad = Random({3, 5, dim}, dtype);
      at::Tensor xd = x.detach().to(at::kDouble).set_requires_grad(true), wd = w.detach().to(at::kDouble).set_requires_grad(true);
      at::Tensor out = RmsNormFunction(x, w, 1e-5), expected = RmsNormOracle(xd, wd, 1e-5);
      EXPECT_LT(Error(out, expected), tolerance) << dim;
      auto got = Gradients(out, grad, {x, w}), want = Gradients(expected, grad.to(at::kDouble), {xd, wd});
      EXPECT_EQ(got[1].scalar_type(), dtype);
      EXPECT_LT(Error(got[1], want[1]), tolerance * 3) << dim;
      if (dim == 1) continue;  // the gradient of x is all but 0
      EXPECT_LT(Error(got[0], want[0]), tolerance * 3) << dim;
    }
  }
}

TEST_F(OpsTest, RmsNormDoesNotDependOnThreads) {
  at::Tensor x = Random({4, 700, 530}).set_requires_grad(true), w = Random({530}).set_requires_grad(true);
  at::Tensor one = RmsNormFunction(x, w, 1e-5);
  auto gradients_one = Gradients(one, x.detach(), {x, w});
  at::set_num_threads(2);
  at::Tensor two = RmsNormFunction(x, w, 1e-5);
  auto gradients_two = Gradients(two, x.detach(), {x, w});
  EXPECT_TRUE(at::equal(one, two));
  EXPECT_TRUE(at::equal(gradients_one[0], gradients_two[0]) && at::equal(gradients_one[1], gradients_two[1]));
}

TEST_F(OpsTest, RmsNormRefusesWhatItCannotRead) {
  EXPECT_THROW(RmsNormFunction(Random({2, 4}), Random({5}), 1e-5), c10::Error);
  EXPECT_THROW(RmsNormFunction(Random({2, 4}), Random({4}, at::kBFloat16), 1e-5), c10::Error);
  EXPECT_THROW(RmsNormFunction(Random({4, 2}).t(), Random({4}), 1e-5), c10::Error);
  EXPECT_THROW(RmsNormFunction(Random({2, 4}, at::kDouble), Random({4}, at::kDouble), 1e-5), c10::Error);
}

// `window`: 0 for none.
at::Tensor AttentionOracle(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, bool causal, double scale,
                           int64_t window = 0) {
  const int64_t repeat = q.size(1) / k.size(1), seq = q.size(2);
  at::Tensor scores = at::matmul(q, k.repeat_interleave(repeat, 1).transpose(2, 3)) * scale;
  if (causal) scores = scores.masked_fill(at::ones({seq, seq}, at::kBool).triu(1), -INFINITY);
  if (window > 0) scores = scores.masked_fill(at::ones({seq, seq}, at::kBool).tril(-window), -INFINITY);
  return at::matmul(at::softmax(scores, -1), v.repeat_interleave(repeat, 1));
}

TEST_F(OpsTest, AttentionEqualsItsDefinitionAndGradient) {
  struct Case {
    int64_t batch, heads, kv_heads, seq, dim;
    bool causal;
  };
  for (const Case& c :
       {Case{2, 4, 4, 17, 8, true}, Case{1, 8, 2, 33, 16, true}, Case{2, 6, 1, 5, 4, false}, Case{1, 2, 2, 1, 8, true}}) {
    at::Tensor q = Random({c.batch, c.seq, c.heads, c.dim}).set_requires_grad(true);
    at::Tensor k = Random({c.batch, c.seq, c.kv_heads, c.dim}).set_requires_grad(true);
    at::Tensor v = Random({c.batch, c.seq, c.kv_heads, c.dim}).set_requires_grad(true);
    at::Tensor out = AttentionFunction(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), c.causal, 0.4);
    std::vector<at::Tensor> doubles;
    for (const at::Tensor& t : {q, k, v}) doubles.push_back(t.detach().to(at::kDouble).set_requires_grad(true));
    at::Tensor expected =
        AttentionOracle(doubles[0].transpose(1, 2), doubles[1].transpose(1, 2), doubles[2].transpose(1, 2), c.causal, 0.4);
    EXPECT_LT(Error(out, expected), 1e-5);
    at::Tensor grad = Random(out.sizes());
    auto got = Gradients(out, grad, {q, k, v}), want = Gradients(expected, grad.to(at::kDouble), doubles);
    for (int i = 0; i < 3; ++i) EXPECT_LT((got[i] - want[i]).abs().max().item<double>(), 1e-5) << i;
  }
}

// The last two: several blocks of queries, and keys of a block that none of its last queries sees.
TEST_F(OpsTest, AttentionWithAWindowEqualsItsDefinitionAndGradient) {
  struct Case {
    int64_t batch, heads, kv_heads, seq, dim, window;
  };
  for (const Case& c : {Case{2, 4, 2, 17, 8, 5}, Case{1, 2, 1, 9, 4, 1}, Case{2, 2, 2, 12, 8, 12}, Case{1, 2, 2, 7, 8, 100},
                        Case{2, 4, 1, 201, 8, 70}, Case{1, 1, 1, 2500, 4, 2400}, Case{1, 1, 1, 4200, 4, 4100}}) {
    for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
      if (c.seq > 1000 && dtype != at::kFloat) continue;
      SCOPED_TRACE(testing::Message() << c.seq << " positions, window " << c.window << " " << dtype);
      std::vector<at::Tensor> inputs, doubles;
      for (const int64_t heads : {c.heads, c.kv_heads, c.kv_heads})
        inputs.push_back(Random({c.batch, c.seq, heads, c.dim}, dtype).set_requires_grad(true));
      for (const at::Tensor& t : inputs) doubles.push_back(t.detach().to(at::kDouble).set_requires_grad(true));
      const auto by_head = [](const at::Tensor& t) { return t.transpose(1, 2); };
      at::Tensor out = WindowedAttentionFunction(by_head(inputs[0]), by_head(inputs[1]), by_head(inputs[2]), c.window, 0.4);
      at::Tensor expected =
          AttentionOracle(by_head(doubles[0]), by_head(doubles[1]), by_head(doubles[2]), true, 0.4, c.window);
      EXPECT_LT(Error(out, expected), dtype == at::kFloat ? 1e-5 : 2e-2);
      at::Tensor grad = Random(out.sizes(), dtype);
      auto got = Gradients(out, grad, inputs), want = Gradients(expected, grad.to(at::kDouble), doubles);
      for (int i = 0; i < 3; ++i) {
        EXPECT_EQ(got[i].scalar_type(), dtype);
        // With a window of one the gradients of queries and keys are all but 0.
        if (c.window == 1 && i < 2) continue;
        EXPECT_LT(Error(got[i], want[i]), dtype == at::kFloat ? 1e-5 : 4e-2) << i;
      }
    }
  }
}

TEST_F(OpsTest, AttentionWithAWindowIsRefusedByNameOnCuda) {
  const auto op = c10::Dispatcher::singleton().findSchemaOrThrow("lego::attention", "window");
  at::Tensor q = Random({1, 2, 8, 8});
  std::vector<c10::IValue> stack = {q, q, q, 4, 0.3};
  try {
    op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CUDA), &stack);
    FAIL() << "accepted";
  } catch (const c10::Error& error) {
    EXPECT_NE(std::string(error.what()).find("not built for CUDA"), std::string::npos) << error.what();
  }
  EXPECT_THROW(WindowedAttentionFunction(q, q, q, 0, 0.3), c10::Error);
  EXPECT_THROW(WindowedAttentionFunction(q, q.narrow(2, 0, 4), q.narrow(2, 0, 4), 2, 0.3), c10::Error);
}

// The fake device takes geometry from the Meta kernels: strides and dtypes must be those of the CPU.
void ExpectSameGeometry(const std::vector<at::Tensor>& real, const std::vector<at::Tensor>& meta) {
  ASSERT_EQ(real.size(), meta.size());
  for (size_t i = 0; i < real.size(); ++i) {
    EXPECT_EQ(real[i].sizes(), meta[i].sizes()) << i;
    EXPECT_EQ(real[i].strides(), meta[i].strides()) << i;
    EXPECT_EQ(real[i].scalar_type(), meta[i].scalar_type()) << i;
    EXPECT_EQ(real[i].storage().nbytes(), meta[i].storage().nbytes()) << i;
  }
}

std::vector<at::Tensor> Call(const char* name, std::vector<c10::IValue> stack, const char* overload) {
  at::NoGradGuard no_grad;
  c10::Dispatcher::singleton().findSchemaOrThrow(name, overload).callBoxed(stack);
  std::vector<at::Tensor> results;
  for (const c10::IValue& value : stack) results.push_back(value.toTensor());
  return results;
}

void CompareMeta(const char* name, const std::vector<c10::IValue>& arguments, const char* overload = "") {
  SCOPED_TRACE(name);
  std::vector<c10::IValue> meta;
  for (const c10::IValue& value : arguments) {
    if (!value.isTensor()) {
      meta.push_back(value);
      continue;
    }
    const at::Tensor& t = value.toTensor();
    meta.push_back(at::empty_strided(t.sizes(), t.strides(), t.options().device(at::kMeta)));
  }
  ExpectSameGeometry(Call(name, arguments, overload), Call(name, meta, overload));
}

TEST_F(OpsTest, MetaKernelsGiveTheCpusGeometry) {
  for (at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    at::Tensor x = Random({2, 5, 12}, dtype), w = Random({12}, dtype);
    CompareMeta("lego::rms_norm", {x, w, 1e-5});
    CompareMeta("lego::rms_norm_backward", {x, x, w, Random({2, 5})});
    CompareMeta("lego::rms_norm_backward", {x, x, Random({2, 5})}, "weight");
    CompareMeta("lego::dropout", {x, at::ones({2}, at::kLong), at::ones({2}, at::kLong), 3, 0.5, 0, std::vector<int64_t>()});
    at::Tensor q = Random({2, 7, 4, 8}, dtype).transpose(1, 2), k = Random({2, 7, 2, 8}, dtype).transpose(1, 2);
    CompareMeta("lego::attention", {q, k, k, true, 0.3});
    auto forward = Call("lego::attention", {q, k, k, true, 0.3}, "");
    CompareMeta("lego::attention_backward", {forward[0], q, k, k, forward[0], forward[1], true, 0.3});
    CompareMeta("lego::attention", {q, k, k, 3, 0.3}, "window");
    CompareMeta("lego::attention_backward", {forward[0], q, k, k, forward[0], forward[1], 3, 0.3}, "window");
    at::Tensor dense = Random({2, 4, 7, 8}, dtype);
    CompareMeta("lego::attention", {dense, dense, dense, false, 0.3});
  }
}

TEST_F(OpsTest, TheGradientOfARmsNormsWeightAloneIsTheSame) {
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    const at::Tensor grad = Random({2, 5, 12}, dtype), x = Random({2, 5, 12}, dtype), rstd = Random({2, 5});
    const at::Tensor both = Call("lego::rms_norm_backward", {grad, x, Random({12}, dtype), rstd}, "")[1];
    EXPECT_TRUE(at::equal(Call("lego::rms_norm_backward", {grad, x, rstd}, "weight")[0], both));
    EXPECT_THROW(Call("lego::rms_norm_backward", {grad, x, Random({2, 4})}, "weight"), c10::Error);
    EXPECT_THROW(Call("lego::rms_norm_backward", {grad.transpose(0, 1), x.transpose(0, 1), rstd}, "weight"), c10::Error);
  }
}

at::Tensor Longs(std::vector<int64_t> values) {
  at::Tensor t = at::empty({static_cast<int64_t>(values.size())}, at::kLong);
  std::copy(values.begin(), values.end(), t.mutable_data_ptr<int64_t>());
  return t;
}

TEST_F(OpsTest, DropoutDropsAndScales) {
  at::Tensor x = at::ones({4, 250, 40}), rng = Longs({5, 1}), samples = Longs({0, 1, 2, 3});
  at::Tensor out = DropoutFunction(x, rng, samples, 0, 0.25);
  at::Tensor kept = out != 0;
  EXPECT_TRUE(at::allclose(out.masked_select(kept), at::full({1}, 1 / 0.75)));
  // 40,000 draws: the standard deviation of the mean is 0.0022.
  EXPECT_NEAR(kept.to(at::kFloat).mean().item<double>(), 0.75, 0.011);
  EXPECT_TRUE(at::equal(DropoutFunction(x, rng, samples, 0, 0.0), x));
}

TEST_F(OpsTest, DropoutIsAFunctionOfSamplePositionAndSite) {
  at::Tensor x = Random({4, 31, 7}), rng = Longs({5, 9}), samples = Longs({40, 41, 42, 43});
  at::Tensor whole = DropoutFunction(x, rng, samples, 2, 0.5);
  // Split into microbatches, and in another order.
  EXPECT_TRUE(at::equal(DropoutFunction(x.narrow(0, 1, 2), rng, samples.narrow(0, 1, 2), 2, 0.5), whole.narrow(0, 1, 2)));
  EXPECT_TRUE(at::equal(DropoutFunction(x.flip(0), rng, samples.flip(0), 2, 0.5), whole.flip(0)));
  // In consecutive parts of each sample.
  const at::Tensor rows = x.view({4, 31 * 7});
  for (const auto& [first, size] : std::vector<std::pair<int64_t, int64_t>>{{0, 5}, {1, 64}, {6, 70}, {63, 154}, {216, 1}}) {
    EXPECT_TRUE(at::equal(DropoutFunction(rows.narrow(1, first, size), rng, samples, 2, 0.5, {.first = first}),
                          whole.view({4, 31 * 7}).narrow(1, first, size)))
        << first << " " << size;
  }
  // In runs: of each sample [2, 4, 6, 7] the second and the last of dimension 1, of these the first three of dimension 2.
  const at::Tensor cube = Random({4, 2 * 4 * 6 * 7}), mask = DropoutFunction(cube, rng, samples, 2, 0.5);
  const auto part = [](const at::Tensor& x) {
    const at::Tensor one = x.view({4, 2, 4, 6, 7}).narrow(2, 1, 3).narrow(3, 0, 3);
    return at::stack({one.select(2, 0), one.select(2, 2)}, 2).reshape({4, -1});
  };
  const DropoutRuns runs{.first = 42, .length = 21, .count = 2, .stride = 84, .outer_stride = 168};
  EXPECT_TRUE(at::equal(DropoutFunction(part(cube), rng, samples, 2, 0.5, runs), part(mask)));
  EXPECT_THROW(DropoutFunction(cube, rng, samples, 2, 0.5, {.length = 11}), c10::Error);
  // Whatever else changes, the mask does: seed, step, sample, sample's high bits, site.
  auto differs = [&](at::Tensor r, at::Tensor s, int64_t site) { return !at::equal(DropoutFunction(x, r, s, site, 0.5), whole); };
  EXPECT_TRUE(differs(Longs({6, 9}), samples, 2));
  EXPECT_TRUE(differs(Longs({5, 10}), samples, 2));
  EXPECT_TRUE(differs(rng, samples + 4, 2));
  EXPECT_TRUE(differs(rng, samples + (int64_t{1} << 33), 2));
  EXPECT_TRUE(differs(rng, samples, 3));
}

TEST_F(OpsTest, DropoutsGradientUsesTheSameMask) {
  at::Tensor x = Random({2, 100}).set_requires_grad(true), rng = Longs({5, 9}), samples = Longs({7, 8});
  at::Tensor out = DropoutFunction(x, rng, samples, 1, 0.4);
  at::Tensor grad = Gradients(out, at::ones({2, 100}), {x})[0];
  EXPECT_TRUE(at::allclose(grad * x, out));
  at::Tensor half = DropoutFunction(x.detach().to(at::kBFloat16), rng, samples, 1, 0.4);
  EXPECT_TRUE(at::equal(half == 0, out == 0));
}

template <class T>
void ExpectDropoutOfAGpusThreads(at::ScalarType dtype) {
  const at::Tensor x = Random({3, 37, 11}, dtype), rng = Longs({5, 9}), samples = Longs({7, (int64_t{3} << 32) + 1, 9});
  at::Tensor out = at::empty_like(x);
  DropoutCall<T> call{x.const_data_ptr<T>(),
                      out.mutable_data_ptr<T>(),
                      rng.const_data_ptr<int64_t>(),
                      samples.const_data_ptr<int64_t>(),
                      3,
                      37 * 11,
                      6,
                      FactorOf(0.3),
                      {}};
  // The row of 37 x 11 elements as one run, or as eleven.
  for (const DropoutRuns& runs : std::vector<DropoutRuns>{{0}, {3}, {64}, {1001}, {5, 37, 1, 0, 50}, {6, 37, 2, 45, 1003}}) {
    call.runs = runs;
    for (int64_t block = 0; block < call.Blocks(); ++block) DropBlock(call, block);
    EXPECT_TRUE(at::equal(out, DropoutFunction(x, rng, samples, 6, 0.3, runs))) << dtype << " " << runs.first;
  }
}

// What each thread of the CUDA kernel computes, run here: the same bits.
TEST_F(OpsTest, DropoutOfAGpusThreadsEqualsTheCpus) {
  ExpectDropoutOfAGpusThreads<float>(at::kFloat);
  ExpectDropoutOfAGpusThreads<at::BFloat16>(at::kBFloat16);
  ExpectDropoutOfAGpusThreads<at::Half>(at::kHalf);
}

TEST_F(OpsTest, DropoutRefusesWhatItCannotDo) {
  at::Tensor x = Random({2, 4}), rng = Longs({1, 2}), samples = Longs({1, 2});
  EXPECT_THROW(DropoutFunction(x, rng, Longs({1}), 0, 0.5), c10::Error);
  EXPECT_THROW(DropoutFunction(x, rng, samples, 0, 1.0), c10::Error);
  EXPECT_THROW(DropoutFunction(x, rng, samples, 70000, 0.5), c10::Error);
  EXPECT_THROW(DropoutFunction(x.to(at::kDouble), rng, samples, 0, 0.5), c10::Error);
}

}  // namespace
}  // namespace legoai::model
