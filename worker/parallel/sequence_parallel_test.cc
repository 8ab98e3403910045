#include "worker/parallel/sequence_parallel.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>

#include "worker/comm/testing/process_group_test_util.h"

namespace legoai::parallel {
namespace {

using at::Tensor;
using comm::testing::RunRanks;

// The same tensor on every rank.
Tensor Drawn(at::IntArrayRef sizes, uint64_t seed) {
  return at::randn(sizes, at::detail::createCPUGenerator(seed), at::TensorOptions(at::kFloat));
}

// Integers, so that sums are exact in any order and dtype.
Tensor Whole(at::IntArrayRef sizes, uint64_t seed, at::ScalarType dtype) { return (Drawn(sizes, seed) * 4).round().to(dtype); }

Tensor Shard(const Tensor& whole, int64_t tp, int64_t rank) {
  const int64_t n = whole.size(1) / tp;
  return whole.narrow(1, rank * n, n);
}

struct Case {
  int64_t tp, batch;
  at::ScalarType dtype;
};

class SequenceParallel : public ::testing::TestWithParam<Case> {};

TEST_P(SequenceParallel, GatherAndItsGradient) {
  const Case c = GetParam();
  RunRanks({.tp = c.tp}, [c](int64_t rank, comm::Runtime& runtime) {
    const int64_t group = runtime.GroupId(mesh::Dim::kTp);
    const Tensor whole = Whole({c.batch, 4 * c.tp, 3}, 1, c.dtype);
    Tensor local = Shard(whole, c.tp, rank).clone().set_requires_grad(true);
    Tensor gathered = GatherSequence(local, group);
    EXPECT_TRUE(at::equal(gathered, whole));
    EXPECT_TRUE(gathered.is_contiguous());
    // Each rank's own gradient of the whole; they are summed.
    Tensor sum = at::zeros_like(whole);
    for (int64_t r = 0; r < c.tp; ++r) sum = sum + Whole(whole.sizes(), 100 + r, c.dtype);
    gathered.backward(Whole(whole.sizes(), 100 + rank, c.dtype));
    EXPECT_TRUE(at::equal(local.grad(), Shard(sum, c.tp, rank)));
  });
}

TEST_P(SequenceParallel, ReduceScatterAndItsGradient) {
  const Case c = GetParam();
  RunRanks({.tp = c.tp}, [c](int64_t rank, comm::Runtime& runtime) {
    const int64_t group = runtime.GroupId(mesh::Dim::kTp);
    const std::vector<int64_t> sizes{c.batch, 4 * c.tp, 3};
    Tensor sum = Whole(sizes, 10, c.dtype);
    for (int64_t r = 1; r < c.tp; ++r) sum = sum + Whole(sizes, 10 + r, c.dtype);
    Tensor partial = Whole(sizes, 10 + rank, c.dtype).set_requires_grad(true);
    Tensor local = ReduceScatterSequence(partial, group);
    EXPECT_TRUE(at::equal(local, Shard(sum, c.tp, rank)));
    const Tensor gradient = Whole(sizes, 7, c.dtype);
    local.backward(Shard(gradient, c.tp, rank));
    EXPECT_TRUE(at::equal(partial.grad(), gradient));
  });
}

TEST_P(SequenceParallel, ColumnsAndTheirGradient) {
  const Case c = GetParam();
  RunRanks({.tp = c.tp}, [c](int64_t rank, comm::Runtime& runtime) {
    const Tensor whole = Whole({c.batch, 5, 3 * c.tp}, 3, c.dtype);
    Tensor local = whole.narrow(2, 3 * rank, 3).clone().set_requires_grad(true);
    Tensor gathered = GatherColumns(local, runtime.GroupId(mesh::Dim::kTp));
    EXPECT_TRUE(at::equal(gathered, whole));
    const Tensor gradient = Whole(whole.sizes(), 4, c.dtype);
    gathered.backward(gradient);
    EXPECT_TRUE(at::equal(local.grad(), gradient.narrow(2, 3 * rank, 3)));
  });
}

INSTANTIATE_TEST_SUITE_P(Cases, SequenceParallel,
                         ::testing::Values(Case{1, 2, at::kFloat}, Case{2, 1, at::kFloat}, Case{2, 3, at::kFloat},
                                           Case{3, 2, at::kFloat}, Case{2, 2, at::kBFloat16}),
                         [](const auto& info) {
                           return "tp" + std::to_string(info.param.tp) + "_batch" + std::to_string(info.param.batch) + "_" +
                                  (info.param.dtype == at::kFloat ? "fp32" : "bf16");
                         });

TEST(SequenceParallelErrors, SequencesThatDoNotDivide) {
  RunRanks({.tp = 2}, [](int64_t rank, comm::Runtime& runtime) {
    EXPECT_THROW(ReduceScatterSequence(Drawn({1, 3, 2}, 1), runtime.GroupId(mesh::Dim::kTp)), c10::Error);
  });
}

}  // namespace
}  // namespace legoai::parallel
