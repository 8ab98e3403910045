// Attention whose sequence lies on several ranks, beside attention of the whole sequence written out in double; and which tokens
// each rank has.
#include "worker/parallel/context_parallel.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>
#include <vector>

#include "core/recipe/recipe.h"
#include "worker/comm/testing/process_group_test_util.h"
#include "worker/model/language_model.h"
#include "worker/parallel/testing/tiny_job.h"

namespace legoai::parallel {
namespace {

using at::Tensor;

constexpr int64_t kBatch = 2, kHeads = 4, kKeyHeads = 2, kLength = 48, kWidth = 8;

Tensor Whole(int64_t heads, uint64_t seed) {
  return at::randn({kBatch, heads, kLength, kWidth}, at::detail::createCPUGenerator(seed), at::TensorOptions(at::kDouble));
}

// softmax(q k^T / sqrt(width) + mask) v, of leaves in double.
Tensor BruteForce(const Tensor& q, const Tensor& k, const Tensor& v) {
  const auto per_query_head = [](const Tensor& x) { return x.repeat_interleave(kHeads / kKeyHeads, 1); };
  const Tensor mask = at::full({kLength, kLength}, -std::numeric_limits<double>::infinity(), at::kDouble).triu(1);
  const Tensor scores = at::matmul(q, per_query_head(k).transpose(2, 3)) / std::sqrt(double(kWidth)) + mask;
  return at::matmul(at::softmax(scores, -1), per_query_head(v));
}

// The positions that a rank has, by what the header says of parts.
Tensor PositionsOf(int64_t rank, int64_t ranks, int64_t parts) {
  const int64_t length = kLength / (ranks * parts);
  std::vector<Tensor> positions = {at::arange(length) + (ranks - 1 - rank) * length};
  if (parts == 2) positions.push_back(at::arange(length) + (ranks + rank) * length);
  return at::cat(positions);
}

// As projections leave it: by sequence.
Tensor LocalLeaf(const Tensor& whole, const Tensor& positions, at::ScalarType dtype) {
  return whole.index_select(2, positions).to(dtype).transpose(1, 2).contiguous().transpose(1, 2).set_requires_grad(true);
}

void ExpectNear(const Tensor& actual, const Tensor& whole, const Tensor& positions, double tolerance, const char* what) {
  const Tensor expected = whole.index_select(2, positions);
  const double error = (actual.to(at::kDouble) - expected).abs().max().item<double>();
  EXPECT_LE(error, tolerance * expected.abs().max().item<double>()) << what;
}

using Sizes = std::tuple<int64_t, int64_t, at::ScalarType, bool>;  // ranks, parts of each, dtype, whether keys and values rotate
class ContextAttentionTest : public ::testing::TestWithParam<Sizes> {};

TEST_P(ContextAttentionTest, EqualsAttentionOfTheWholeSequence) {
  const auto [ranks, parts, dtype, rotates] = GetParam();
  comm::testing::RunRanks({.cp = ranks}, [ranks = ranks, parts = parts, dtype = dtype, rotates = rotates](
                                             int64_t rank, comm::Runtime& runtime) {
    const Tensor q = Whole(kHeads, 1).requires_grad_(), k = Whole(kKeyHeads, 2).requires_grad_(),
                 v = Whole(kKeyHeads, 3).requires_grad_(), gradient = Whole(kHeads, 4);
    const Tensor expected = BruteForce(q, k, v);
    expected.backward(gradient);

    const Tensor positions = PositionsOf(rank, ranks, parts);
    const ContextPlace place = PlaceInContext(runtime, parts, rotates);
    for (int step = 0; step < 2; ++step) {  // events are used again
      const Tensor lq = LocalLeaf(q.detach(), positions, dtype), lk = LocalLeaf(k.detach(), positions, dtype),
                   lv = LocalLeaf(v.detach(), positions, dtype);
      const Tensor out = ContextAttention(lq, lk, lv, place);
      EXPECT_EQ(out.scalar_type(), dtype);
      EXPECT_TRUE(out.transpose(1, 2).is_contiguous());
      out.backward(gradient.index_select(2, positions).to(dtype));

      const double tolerance = dtype == at::kFloat ? 2e-6 : 3e-2;
      ExpectNear(out.detach(), expected.detach(), positions, tolerance, "result");
      ExpectNear(lq.grad(), q.grad(), positions, tolerance, "gradient of queries");
      ExpectNear(lk.grad(), k.grad(), positions, tolerance, "gradient of keys");
      ExpectNear(lv.grad(), v.grad(), positions, tolerance, "gradient of values");
    }
    return std::string();
  });
}

std::vector<Sizes> EverySize() {
  std::vector<Sizes> sizes;
  for (const bool rotates : {false, true}) {
    for (const int64_t parts : {2, 1}) {
      for (const int64_t ranks : {2, 3, 4}) sizes.push_back({ranks, parts, at::kFloat, rotates});
    }
    sizes.push_back({4, 2, at::kBFloat16, rotates});
  }
  return sizes;
}
INSTANTIATE_TEST_SUITE_P(Sizes, ContextAttentionTest, ::testing::ValuesIn(EverySize()));

TEST(GatherContext, GathersInTheOrderOfTheSequence) {
  for (const auto& [ranks, parts, dtype] :
       {std::tuple{2, 2, at::kFloat}, {3, 1, at::kFloat}, {4, 2, at::kFloat}, {4, 1, at::kFloat}, {4, 2, at::kBFloat16}}) {
    comm::testing::RunRanks({.cp = ranks}, [ranks = ranks, parts = parts, dtype = dtype](int64_t rank, comm::Runtime& runtime) {
      const Tensor whole = Whole(kKeyHeads, 5).to(dtype), positions = PositionsOf(rank, ranks, parts);
      const Tensor local = LocalLeaf(whole, positions, dtype);
      const Tensor gathered = GatherContext(local, PlaceInContext(runtime, parts, /*rotates=*/false));
      EXPECT_TRUE(at::equal(gathered.detach(), whole));
      // Every rank has the same share of the gradient.
      gathered.backward(at::ones_like(gathered) * at::arange(kLength, dtype).view({1, 1, kLength, 1}));
      EXPECT_TRUE(at::equal(local.grad(), (positions * ranks).to(dtype).view({1, 1, -1, 1}).expand_as(local)));
      return std::string();
    });
  }
}

TEST(TokensOfRank, AreDealtOutOnceAndBalanced) {
  for (const int64_t cp : {1, 2, 4}) {
    for (const auto balance : {v1::BALANCE_HEAD_TAIL, v1::BALANCE_NONE}) {
      v1::Recipe recipe = DefaultRecipe();
      recipe.mutable_training()->set_seq_len(48);
      recipe.mutable_training()->set_local_batch_size(1);
      recipe.mutable_parallelism()->set_context_parallel_degree(cp);
      recipe.mutable_parallelism()->set_context_parallel_load_balancer(balance);
      recipe.mutable_parallelism()->set_tensor_parallel_degree(2);
      const auto resolved = ResolvedRecipe::Create(recipe, testing::TinyLlama(), 2 * cp);
      ASSERT_TRUE(resolved.ok()) << resolved.status();
      std::vector<int> seen(48);
      std::vector<int64_t> pairs(cp);
      for (int64_t rank = 0; rank < 2 * cp; ++rank) {
        model::StepContext context;
        context.runs = TokensOfRank(*resolved, rank);
        context.part = rank % 2;
        // Of the tokens between the blocks, tensor parallel gives each of its ranks half.
        for (const model::TokenRun& run : context.RunsOf(48 / cp / 2)) {
          for (int64_t t = run.first; t < run.first + run.length; ++t) ++seen[t], pairs[rank / 2] += t + 1;
        }
      }
      EXPECT_EQ(seen, std::vector<int>(48, 1)) << cp;
      const auto [least, most] = std::minmax_element(pairs.begin(), pairs.end());
      EXPECT_EQ(*least == *most, cp == 1 || balance == v1::BALANCE_HEAD_TAIL) << cp;
      EXPECT_EQ(*most, pairs[0]) << "the first rank, of which the simulator predicts, has less to do than another";
    }
  }
}

}  // namespace
}  // namespace legoai::parallel
