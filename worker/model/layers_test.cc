#include "worker/model/layers.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <vector>

namespace legoai::model {
namespace {

class LayersTest : public ::testing::Test {
 protected:
  void SetUp() override {
    at::set_num_threads(1);
    at::manual_seed(11);
  }
};

at::Tensor Leaf(at::IntArrayRef sizes) { return at::randn(sizes).set_requires_grad(true); }

void Fill(Module& module) {
  for (Parameter* parameter : module.Parameters()) parameter->value = Leaf(parameter->local_shape);
}

void ExpectClose(const std::vector<at::Tensor>& got, const std::vector<at::Tensor>& want) {
  for (size_t i = 0; i < want.size(); ++i) EXPECT_TRUE(at::allclose(got[i], want[i], 1e-4, 1e-5)) << i;
}

TEST_F(LayersTest, LinearEqualsAtensWithItsGradients) {
  for (bool bias : {false, true}) {
    Linear linear(6, 4, bias, {});
    linear.SetPath("up");
    Fill(linear);
    at::Tensor x = Leaf({2, 3, 6}), grad = at::randn({2, 3, 4});
    std::vector<at::Tensor> inputs = {x, linear.weight()->value};
    if (bias) inputs.push_back(linear.bias()->value);
    at::Tensor out = linear(x);
    at::Tensor expected = at::linear(x, linear.weight()->value, bias ? linear.bias()->value : at::Tensor());
    ExpectClose({out}, {expected});
    ExpectClose(torch::autograd::grad({out}, inputs, {grad}), torch::autograd::grad({expected}, inputs, {grad}));
  }
}

TEST_F(LayersTest, LinearTakesStridedInputAndGivesNoUnneededGradient) {
  at::Tensor weight = Leaf({4, 6}), base = at::randn({2, 6, 3});
  at::Tensor x = base.transpose(1, 2);
  at::Tensor out = LinearFunction(x, weight, {});
  ExpectClose({out}, {at::linear(x, weight)});
  at::Tensor grad = at::randn({4, 3, 2}).permute({2, 1, 0});
  ExpectClose(torch::autograd::grad({out}, {weight}, {grad}), torch::autograd::grad({at::linear(x, weight)}, {weight}, {grad}));
}

TEST_F(LayersTest, LinearsOutputMayBeChangedInPlace) {
  at::Tensor weight = Leaf({4, 6}), x = Leaf({2, 3, 6});
  at::Tensor out = LinearFunction(x, weight, {});
  out.add_(1).mul_(2);
  at::Tensor expected = (at::linear(x, weight) + 1) * 2;
  at::Tensor grad = at::randn({2, 3, 4});
  ExpectClose(torch::autograd::grad({out}, {x, weight}, {grad}), torch::autograd::grad({expected}, {x, weight}, {grad}));
}

// FSDP frees the weight's memory after forward and fills other memory of the same storage before backward.
TEST_F(LayersTest, WeightsStorageMayBeResizedBetweenForwardAndBackward) {
  Linear linear(6, 4, true, {});
  RmsNorm rms(6, 1e-5);
  LayerNorm layer(6, 1e-5);
  std::vector<Module*> modules = {&linear, &rms, &layer};
  for (Module* module : modules) {
    module->SetPath("m");
    Fill(*module);
    at::Tensor x = Leaf({2, 3, 6});
    at::Tensor grad;
    auto gradients = [&](bool resize) {
      at::Tensor out = (*module)(x);
      if (!grad.defined()) grad = at::randn(out.sizes());
      std::vector<at::Tensor> inputs = {x}, copies;
      for (Parameter* p : module->Parameters()) {
        inputs.push_back(p->value);
        if (!resize) continue;
        at::Tensor copy = p->value.detach().clone();
        auto* storage = p->value.storage().unsafeGetStorageImpl();
        const size_t bytes = storage->nbytes();
        storage->set_data_ptr_noswap(c10::DataPtr(nullptr, c10::kCPU));
        storage->set_nbytes(0);
        storage->set_data_ptr_noswap(c10::GetAllocator(c10::kCPU)->allocate(bytes));
        storage->set_nbytes(bytes);
        at::NoGradGuard no_grad;
        p->value.copy_(copy);  // in place, raising the version
      }
      return torch::autograd::grad({out}, inputs, {grad});
    };
    auto plain = gradients(false), resized = gradients(true);
    for (size_t i = 0; i < plain.size(); ++i) EXPECT_TRUE(at::equal(plain[i], resized[i])) << i;
  }
}

TEST_F(LayersTest, TiedLinearUsesTheOtherWeightAndDeclaresNone) {
  Embedding embedding(10, 6, {});
  Linear head(embedding.weight());
  embedding.SetPath("wte");
  head.SetPath("lm_head");
  Fill(embedding);
  EXPECT_TRUE(head.Parameters().empty());
  EXPECT_EQ(head.weight()->name(), "wte.weight");
  at::Tensor tokens = at::randint(10, {2, 3}, at::kLong), weight = embedding.weight()->value;
  at::Tensor expected = at::linear(at::embedding(weight, tokens), weight);
  at::Tensor logits = head(embedding(tokens));
  ExpectClose({logits}, {expected});
  ExpectClose(torch::autograd::grad({logits.sum()}, {weight}), torch::autograd::grad({expected.sum()}, {weight}));
}

TEST_F(LayersTest, LayerNormEqualsAtens) {
  LayerNorm norm(6, 1e-3);
  norm.SetPath("ln");
  Fill(norm);
  at::Tensor x = Leaf({2, 3, 6}), w = norm.parameter("weight")->value, b = norm.parameter("bias")->value;
  at::Tensor expected = at::layer_norm(x, {6}, w, b, 1e-3), grad = at::randn({2, 3, 6});
  ExpectClose({norm(x)}, {expected});
  ExpectClose(torch::autograd::grad({norm(x)}, {x, w, b}, {grad}), torch::autograd::grad({expected}, {x, w, b}, {grad}));
}

// Score by score: two query heads to a head of keys and values.
TEST_F(LayersTest, CappedAttentionIsItsFormula) {
  constexpr int64_t kBatch = 2, kHeads = 4, kKvHeads = 2, kSeq = 7, kDim = 6;
  const double scale = 0.7, cap = 1.5;
  for (const int64_t window : {0, 3}) {
    const at::Tensor q = Leaf({kBatch, kHeads, kSeq, kDim}), k = Leaf({kBatch, kKvHeads, kSeq, kDim}),
                     v = Leaf({kBatch, kKvHeads, kSeq, kDim});
    const at::Tensor mask = CausalMask(kSeq, window, at::TensorOptions().dtype(at::kFloat));
    std::vector<at::Tensor> rows;
    for (int64_t b = 0; b < kBatch; ++b) {
      for (int64_t h = 0; h < kHeads; ++h) {
        for (int64_t i = 0; i < kSeq; ++i) {
          const int64_t first = window > 0 ? std::max<int64_t>(0, i - window + 1) : 0, kv = h / (kHeads / kKvHeads);
          const at::Tensor keys = k[b][kv].narrow(0, first, i + 1 - first), values = v[b][kv].narrow(0, first, i + 1 - first);
          const at::Tensor scores = cap * at::tanh(at::mv(keys, q[b][h][i]) * scale / cap);
          rows.push_back(at::mv(values.t(), at::softmax(scores, 0)));
        }
      }
    }
    const at::Tensor due = at::stack(rows).view({kBatch, kHeads, kSeq, kDim}), got = CappedAttention(q, k, v, mask, scale, cap);
    ExpectClose({got}, {due});
    const at::Tensor grad = at::randn(due.sizes());
    ExpectClose(torch::autograd::grad({got}, {q, k, v}, {grad}), torch::autograd::grad({due}, {q, k, v}, {grad}));
  }
  const at::Tensor mask = CausalMask(4, 4, at::TensorOptions().dtype(at::kFloat));
  EXPECT_TRUE(at::equal(mask, CausalMask(4, 0, at::TensorOptions().dtype(at::kFloat)))) << "as long as the sequence: none";
  EXPECT_THROW(MaskOf(mask, 5, 4), c10::Error);
}

}  // namespace
}  // namespace legoai::model
