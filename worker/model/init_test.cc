#include "worker/model/init.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <random>

namespace legoai::model {
namespace {

using parallel::Cut;
using parallel::ShardSpec;
using parallel::Unsharded;

const InitRule kNormal{InitRule::Kind::kNormal, 0.02};

at::Tensor Fill(const ShardSpec& spec, const InitRule& rule, uint64_t seed) {
  at::Tensor out = at::full(spec.sizes, NAN, at::kFloat);
  FillParameter(spec, rule, seed, out);
  return out;
}

at::Tensor Slice(at::Tensor whole, const ShardSpec& spec) {
  for (size_t d = 0; d < spec.sizes.size(); ++d) whole = whole.narrow(d, spec.offsets[d], spec.sizes[d]);
  return whole;
}

TEST(InitTest, EveryRectangleIsASliceOfTheWhole) {
  const uint32_t seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  auto draw = [&](int64_t low, int64_t high) { return std::uniform_int_distribution<int64_t>(low, high)(random); };
  for (int trial = 0; trial < 200; ++trial) {
    std::vector<int64_t> shape;
    for (int64_t d = draw(1, 3); d > 0; --d) shape.push_back(draw(1, 13));
    const ShardSpec whole = Unsharded("layer." + std::to_string(trial), shape);
    ShardSpec part = whole;
    for (int cuts = 0; cuts < 2; ++cuts) {  // as by tensor parallelism and then FSDP, with uneven and empty parts
      const int64_t degree = draw(1, 5);
      Cut(&part, draw(0, static_cast<int64_t>(shape.size()) - 1), degree, draw(0, degree - 1), mesh::Dim::kTp);
    }
    EXPECT_TRUE(at::equal(Fill(part, kNormal, 3), Slice(Fill(whole, kNormal, 3), part)));
  }
}

TEST(InitTest, DoesNotDependOnThreads) {
  const ShardSpec spec = Unsharded("w", {7000, 61});  // several times what is worth a thread
  at::set_num_threads(1);
  at::Tensor one = Fill(spec, kNormal, 9);
  at::set_num_threads(2);
  EXPECT_TRUE(at::equal(Fill(spec, kNormal, 9), one));
  at::set_num_threads(1);
}

TEST(InitTest, ValuesAreNormal) {
  at::Tensor x = Fill(Unsharded("w", {500, 2000}), kNormal, 1).to(at::kDouble) / 0.02;
  EXPECT_NEAR(x.mean().item<double>(), 0, 0.005);         // five standard deviations
  EXPECT_NEAR((x * x).mean().item<double>(), 1, 0.0075);  // the same
  EXPECT_NEAR(x.pow(4).mean().item<double>(), 3, 0.05);   // kurtosis
  EXPECT_NEAR((x.abs() < 1).to(at::kDouble).mean().item<double>(), 0.6827, 0.0025);
  const at::Tensor neighbours = x.slice(1, 0, 1999) * x.slice(1, 1, 2000);
  EXPECT_NEAR(neighbours.mean().item<double>(), 0, 0.005);
}

TEST(InitTest, NameAndSeedMatter) {
  at::Tensor a = Fill(Unsharded("a", {64}), kNormal, 1);
  EXPECT_FALSE(at::equal(a, Fill(Unsharded("b", {64}), kNormal, 1)));
  EXPECT_FALSE(at::equal(a, Fill(Unsharded("a", {64}), kNormal, 2)));
}

// The values are part of what a run repeats: they must not change from version to version.
TEST(InitTest, ValuesAreThoseOfTheFirstVersion) {
  at::Tensor a = Fill(Unsharded("model.embed_tokens.weight", {2, 3}), {InitRule::Kind::kNormal, 1.0}, 42);
  const float expected[] = {-0.777348849f, 0.239194417f, -1.05696224f, -0.374338465f, 1.15163469f, 0.831897387f};
  for (int i = 0; i < 6; ++i) EXPECT_FLOAT_EQ(a.data_ptr<float>()[i], expected[i]) << i;
}

TEST(InitTest, OnesZerosAndMisfits) {
  EXPECT_TRUE(at::equal(Fill(Unsharded("n", {5}), {InitRule::Kind::kOnes}, 1), at::ones({5})));
  EXPECT_TRUE(at::equal(Fill(Unsharded("n", {5}), {InitRule::Kind::kZeros}, 1), at::zeros({5})));
  EXPECT_THROW(FillParameter(Unsharded("n", {5}), kNormal, 1, at::empty({4})), c10::Error);
  EXPECT_THROW(FillParameter(Unsharded("n", {5}), kNormal, 1, at::empty({5}, at::kDouble)), c10::Error);
}

}  // namespace
}  // namespace legoai::model
