// Newton-Schulz against its polynomial of singular values; matrices in parts against whole ones, bit by bit, in every way to cut
// them.
#include "worker/train/orthogonalize.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/linalg_svdvals.h>
#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "core/mesh/shard_spec.h"
#include "worker/comm/testing/process_group_test_util.h"

namespace legoai::train {
namespace {

using mesh::Dim;
constexpr unsigned kSeed = 5;
constexpr int64_t kIterations = 5;

at::Tensor Random(int64_t rows, int64_t columns, std::mt19937& random) {
  at::Tensor tensor = at::empty({rows, columns});
  std::normal_distribution<float> normal;
  for (int64_t i = 0; i < tensor.numel(); ++i) tensor.mutable_data_ptr<float>()[i] = normal(random);
  return tensor;
}

// An iteration leaves singular vectors as they are and takes each singular value s to a s + b s^3 + c s^5 (Jordan et al. 2024),
// here in double precision; bf16 adds a few hundredths.
TEST(NewtonSchulz, TakesSingularValuesThroughItsPolynomial) {
  SCOPED_TRACE(testing::Message() << "seed " << kSeed);
  std::mt19937 random(kSeed);
  for (const auto& [rows, columns] : {std::pair{8, 24}, {24, 8}, {1, 7}, {12, 12}}) {
    const at::Tensor matrix = Random(rows, columns, random) + 6 * at::eye(rows, columns), x = NewtonSchulz(matrix, kIterations);
    EXPECT_EQ(x.scalar_type(), at::kBFloat16);
    ASSERT_EQ(x.sizes(), at::IntArrayRef({rows, columns}));
    at::Tensor expected = at::linalg_svdvals(matrix.to(at::kDouble));
    expected = expected / expected.norm();
    for (int64_t i = 0; i < kIterations; ++i) {
      expected = 3.4445 * expected - 4.775 * expected.pow(3) + 2.0315 * expected.pow(5);
    }
    const at::Tensor values = at::linalg_svdvals(x.to(at::kDouble)), sorted = std::get<0>(expected.sort(0, /*descending=*/true));
    EXPECT_LT((values - sorted).abs().max().item<double>(), 0.05) << rows << " x " << columns;
    EXPECT_GT(values.min().item<double>(), 0.6) << rows << " x " << columns;
  }
}

struct Layout {
  const char* name;
  mesh::Mesh mesh;
  int64_t tp_dim = 0, copies = 1;
  int64_t matrices = 3, rows = 12, columns = 10;
};

class OrthogonalizeTest : public testing::TestWithParam<Layout> {};

TEST_P(OrthogonalizeTest, PartsAreThoseOfTheWhole) {
  const Layout& layout = GetParam();
  SCOPED_TRACE(testing::Message() << "seed " << kSeed);
  comm::testing::RunRanks(layout.mesh, [&](int64_t rank, comm::Runtime&) {
    std::mt19937 random(kSeed);
    std::vector<std::unique_ptr<model::Parameter>> parameters;
    std::vector<at::Tensor> parts, expected;
    for (int64_t i = 0; i < layout.matrices; ++i) {
      const at::Tensor whole = Random(layout.rows, layout.columns, random);
      parameters.push_back(std::make_unique<model::Parameter>(whole.sizes().vec(), model::InitRule{}));
      model::Parameter& p = *parameters.back();
      p.spec.copies_over_tp = layout.copies;
      parallel::Cut(&p.spec, layout.tp_dim, layout.mesh.tp / layout.copies, layout.mesh.IndexOf(Dim::kTp, rank) / layout.copies,
                    Dim::kTp);
      p.local_shape = p.spec.sizes;
      parallel::Cut(&p.spec, 0, layout.mesh.dp_shard, layout.mesh.IndexOf(Dim::kDpShard, rank), Dim::kDpShard);
      const auto part_of = [&](const at::Tensor& of) {
        return of.narrow(0, p.spec.offsets[0], p.spec.sizes[0]).narrow(1, p.spec.offsets[1], p.spec.sizes[1]);
      };
      parts.push_back(part_of(whole).to(at::kBFloat16));
      expected.push_back(part_of(NewtonSchulz(whole, kIterations)));
    }
    const auto cuts = CutsOf(*parameters.front());
    EXPECT_EQ(MatricesAtOnce(cuts), layout.mesh.dp_shard * (layout.mesh.tp > layout.copies ? layout.mesh.tp : 1));
    const auto results = Orthogonalize(parts, cuts, kIterations);
    ASSERT_EQ(results.size(), expected.size());
    for (size_t i = 0; i < results.size(); ++i) EXPECT_TRUE(at::equal(results[i], expected[i])) << "matrix " << i;
  });
}

INSTANTIATE_TEST_SUITE_P(
    Layouts, OrthogonalizeTest,
    testing::Values(Layout{.name = "one_process", .mesh = {}}, Layout{.name = "fsdp2", .mesh = {.dp_shard = 2}},
                    Layout{.name = "fsdp3_uneven", .mesh = {.dp_shard = 3}, .matrices = 4, .rows = 7},
                    Layout{.name = "fsdp4_an_empty_part", .mesh = {.dp_shard = 4}, .rows = 5},
                    Layout{.name = "tp2_rows", .mesh = {.tp = 2}}, Layout{.name = "tp2_columns", .mesh = {.tp = 2}, .tp_dim = 1},
                    Layout{.name = "tp4_two_copies", .mesh = {.tp = 4}, .copies = 2, .matrices = 5},
                    Layout{.name = "fsdp2_tp2_columns", .mesh = {.dp_shard = 2, .tp = 2}, .tp_dim = 1, .matrices = 7},
                    Layout{.name = "fsdp2_tp2_rows", .mesh = {.dp_shard = 2, .tp = 2}, .matrices = 1, .rows = 6},
                    Layout{.name = "ddp2", .mesh = {.dp_replicate = 2}}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace legoai::train
