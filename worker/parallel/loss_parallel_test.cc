#include "worker/parallel/loss_parallel.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "worker/comm/testing/process_group_test_util.h"
#include "worker/train/loss.h"

namespace legoai::parallel {
namespace {

using at::Tensor;
using comm::testing::RunRanks;

constexpr double kScale = 1.0 / 12;
constexpr int64_t kVocabulary = 11;  // does not divide: shards of 6 and 5, or of 4, 4 and 3

Tensor Logits(at::ScalarType dtype) {
  const auto generator = at::detail::createCPUGenerator(5);
  // Values around 200 overflow without the maximum taken out.
  return (at::randn({2, 3, kVocabulary}, generator, at::TensorOptions(at::kFloat)) * 5 + 200).to(dtype);
}
Tensor Targets() { return at::randint(kVocabulary, {2, 3}, at::detail::createCPUGenerator(6), at::TensorOptions(at::kLong)); }

struct Case {
  int64_t tp;
  at::ScalarType dtype;
};
class LossParallel : public ::testing::TestWithParam<Case> {};

TEST_P(LossParallel, EqualsTheLossOfOneProcess) {
  const Case c = GetParam();
  RunRanks({.tp = c.tp}, [c](int64_t rank, comm::Runtime& runtime) {
    const double tolerance = c.dtype == at::kFloat ? 1e-6 : 1e-2;
    Tensor whole = Logits(c.dtype).set_requires_grad(true);
    const Tensor targets = Targets();
    // Upstream of the loss there may be a factor.
    const Tensor expected = train::MakeCrossEntropy(kScale)(whole, targets);
    (expected * 3).backward();

    const int64_t width = (kVocabulary + c.tp - 1) / c.tp, offset = rank * width;
    const int64_t columns = std::min(width, kVocabulary - offset);
    Tensor shard = Logits(c.dtype).narrow(2, offset, columns).contiguous().set_requires_grad(true);
    const Tensor before = shard.detach().clone();
    const Tensor loss = MakeLossParallel(kScale, offset, runtime.GroupId(mesh::Dim::kTp))(shard, targets);
    (loss * 3).backward();

    EXPECT_EQ(loss.scalar_type(), at::kFloat);
    EXPECT_EQ(loss.dim(), 0);
    EXPECT_TRUE(at::allclose(loss, expected, 1e-6, 0)) << loss.item<float>() << " for " << expected.item<float>();
    EXPECT_EQ(shard.grad().scalar_type(), c.dtype);
    EXPECT_TRUE(at::allclose(shard.grad(), whole.grad().narrow(2, offset, columns), tolerance, 1e-7));
    EXPECT_TRUE(at::allclose(shard.detach(), before, 0, 0)) << "the logits were changed";
  });
}

// Padding counts nothing, not even where its logits are no numbers, and what is left is the sum over the other tokens alone.
TEST_P(LossParallel, IgnoredTargetsAddNothingInEvaluation) {
  const Case c = GetParam();
  RunRanks({.tp = c.tp}, [c](int64_t rank, comm::Runtime& runtime) {
    const at::NoGradGuard evaluation;
    const Tensor logits = Logits(c.dtype), targets = Targets();
    const Tensor expected = train::MakeCrossEntropy(kScale)(logits.narrow(0, 0, 1), targets.narrow(0, 0, 1));
    Tensor padded = targets.clone(), strange = logits.clone();
    padded.select(0, 1).fill_(kIgnoredTarget);
    strange.select(0, 1).select(0, 2).fill_(std::numeric_limits<float>::quiet_NaN());
    const int64_t width = (kVocabulary + c.tp - 1) / c.tp, offset = rank * width;
    const int64_t columns = std::min(width, kVocabulary - offset);
    const auto loss_parallel = MakeLossParallel(kScale, offset, runtime.GroupId(mesh::Dim::kTp));
    EXPECT_TRUE(at::allclose(loss_parallel(strange.narrow(2, offset, columns), padded), expected, 1e-6, 0));
    EXPECT_TRUE(at::allclose(train::MakeCrossEntropy(kScale)(strange, padded), expected, 1e-6, 0));
    padded.fill_(kIgnoredTarget);
    EXPECT_EQ(loss_parallel(strange.narrow(2, offset, columns), padded).item<float>(), 0);
    EXPECT_EQ(train::MakeCrossEntropy(kScale)(strange, padded).item<float>(), 0);
  });
}

INSTANTIATE_TEST_SUITE_P(Cases, LossParallel,
                         ::testing::Values(Case{1, at::kFloat}, Case{2, at::kFloat}, Case{3, at::kFloat}, Case{2, at::kBFloat16}),
                         [](const auto& info) {
                           return "tp" + std::to_string(info.param.tp) + (info.param.dtype == at::kFloat ? "_fp32" : "_bf16");
                         });

TEST(LossParallelMemory, ASecondBackwardIsRefusedNotWrong) {
  RunRanks({.tp = 1}, [](int64_t rank, comm::Runtime& runtime) {
    Tensor logits = Logits(at::kFloat).set_requires_grad(true);
    const Tensor loss = LossParallelCrossEntropy(logits, Targets(), kScale, 0, runtime.GroupId(mesh::Dim::kTp));
    loss.backward({}, /*retain_graph=*/true);
    EXPECT_THROW(loss.backward(), c10::Error);
  });
}

// log p(target) by hand, in double.
TEST(CrossEntropy, IsTheSumOverTokensTimesTheScale) {
  const Tensor logits = Logits(at::kFloat).contiguous(), targets = Targets().contiguous();
  double sum = 0;
  for (int64_t i = 0; i < 6; ++i) {
    const float* x = logits.const_data_ptr<float>() + i * kVocabulary;
    double total = 0;
    for (int64_t v = 0; v < kVocabulary; ++v) total += std::exp(double(x[v]) - 200);
    sum += std::log(total) + 200 - x[targets.const_data_ptr<int64_t>()[i]];
  }
  EXPECT_NEAR(train::MakeCrossEntropy(kScale)(logits, targets).item<double>(), sum * kScale, 1e-5);
  EXPECT_EQ(train::MakeCrossEntropy(kScale)(logits.to(at::kBFloat16), targets).scalar_type(), at::kFloat);
}

}  // namespace
}  // namespace legoai::parallel
