#include "core/operators/op_facts.h"

#include <gtest/gtest.h>

#include <set>

#include "core/trace/testing/trace_builder.h"

namespace legoai::sim {
namespace {

using graph::TraceBuilder;

OpFacts Facts(const TraceBuilder& builder) {
  graph::InstructionView op(builder.trace(), builder.trace().instructions.back());
  const OperatorRow* row = FindOperator(op.name());
  EXPECT_NE(row, nullptr) << op.name();
  return FactsOf(op, *row);
}

double Conventional(const TraceBuilder& builder, int64_t seq) {
  graph::InstructionView op(builder.trace(), builder.trace().instructions.back());
  return ConventionalFlops(op, *FindOperator(op.name()), seq);
}

TEST(OperatorTableTest, NamesAreUniqueAndOverloadsShareARow) {
  std::set<std::string_view> names;
  for (const auto& row : OperatorTable()) EXPECT_TRUE(names.insert(row.name).second) << row.name;
  EXPECT_EQ(FindOperator("aten::add.Tensor"), FindOperator("aten::add.Scalar"));
  EXPECT_NE(FindOperator("aten::add.Tensor"), FindOperator("aten::add_.Tensor"));
  EXPECT_EQ(FindOperator("aten::frobnicate"), nullptr);
}

TEST(OperatorTableTest, UnknownOperatorIsNamed) {
  TraceBuilder b;
  b.Op("aten::frobnicate.out", {b.New(v1::FLOAT32, {2})}, {});
  auto rows = ResolveOperators(b.trace());
  ASSERT_FALSE(rows.ok());
  EXPECT_NE(rows.status().message().find("aten::frobnicate.out"), std::string::npos);
}

TEST(OpFactsTest, MatrixProducts) {
  TraceBuilder b;
  auto a = b.New(v1::BFLOAT16, {8, 16}), w = b.New(v1::BFLOAT16, {16, 32}), out = b.New(v1::BFLOAT16, {8, 32});
  b.Op("aten::mm", {a, w}, {out});
  OpFacts facts = Facts(b);
  EXPECT_EQ(facts.op_class, OpClass::kMatmul);
  EXPECT_EQ(facts.dtype, v1::BFLOAT16);
  EXPECT_EQ(facts.flops, 2 * 8 * 16 * 32);
  EXPECT_EQ(facts.read_bytes, 2 * (8 * 16 + 16 * 32));
  EXPECT_EQ(facts.written_bytes, 2 * 8 * 32);
  auto bias = b.New(v1::BFLOAT16, {32});
  b.Op("aten::addmm", {bias, a, w, int64_t{1}, int64_t{1}}, {out});
  EXPECT_EQ(Facts(b).flops, 2 * 8 * 16 * 32);
  auto x = b.New(v1::FLOAT32, {3, 4, 5}), y = b.New(v1::FLOAT32, {3, 5, 6}), z = b.New(v1::FLOAT32, {3, 4, 6});
  b.Op("aten::bmm", {x, y}, {z});
  EXPECT_EQ(Facts(b).flops, 3 * 2 * 4 * 5 * 6);
  b.Op("aten::baddbmm", {z, x, y}, {z});
  EXPECT_EQ(Facts(b).flops, 3 * 2 * 4 * 5 * 6);
}

// Attention counted pair by pair.
// GPT-2's vocabulary, 50257, is odd.
TEST(OpFactsTest, ProductsWhoseRowsBeginAnywhereAreToldApart) {
  TraceBuilder b;
  const auto unaligned = [&](v1::DType dtype, std::vector<int64_t> a, std::vector<int64_t> w, bool transposed) {
    const auto x = b.New(dtype, a), out = b.New(dtype, {a[0], w[1]});
    const auto y = transposed ? b.View(b.AddStorage(w[0] * w[1] * 4), dtype, w, {1, w[0]}) : b.New(dtype, w);
    b.Op("aten::mm", {x, y}, {out});
    return Facts(b).unaligned;
  };
  EXPECT_FALSE(unaligned(v1::BFLOAT16, {8, 16}, {16, 32}, false));
  EXPECT_TRUE(unaligned(v1::BFLOAT16, {8, 16}, {16, 33}, false)) << "rows of the second factor and of the result";
  EXPECT_TRUE(unaligned(v1::BFLOAT16, {8, 16}, {16, 33}, true)) << "rows of the result";
  EXPECT_TRUE(unaligned(v1::BFLOAT16, {8, 33}, {33, 16}, true));
  EXPECT_TRUE(unaligned(v1::BFLOAT16, {8, 16}, {16, 36}, true)) << "36 elements are 72 bytes";
  EXPECT_FALSE(unaligned(v1::FLOAT32, {8, 16}, {16, 36}, true));
  EXPECT_FALSE(unaligned(v1::BFLOAT16, {9, 16}, {16, 32}, false)) << "of rows there may be any number";
  EXPECT_FALSE(unaligned(v1::BFLOAT16, {1, 33}, {33, 16}, false)) << "of one row";
  EXPECT_FALSE(unaligned(v1::BFLOAT16, {8, 16}, {16, 1}, true)) << "of one column";
  const auto x = b.New(v1::BFLOAT16, {8, 33}), y = b.New(v1::BFLOAT16, {8, 33});
  b.Op("aten::add.Tensor", {x, y}, {b.New(v1::BFLOAT16, {8, 33})});
  EXPECT_FALSE(Facts(b).unaligned);
}

TEST(OpFactsTest, AttentionCountsPairsUnderTheMask) {
  const int64_t batch = 2, heads = 4, kv_heads = 2, seq = 7, dim = 8;
  TraceBuilder b;
  auto q = b.New(v1::BFLOAT16, {batch, heads, seq, dim}), k = b.New(v1::BFLOAT16, {batch, kv_heads, seq, dim}),
       v = b.New(v1::BFLOAT16, {batch, kv_heads, seq, dim}), out = b.New(v1::BFLOAT16, {batch, heads, seq, dim}),
       lse = b.New(v1::FLOAT32, {batch, heads, seq});
  const double unmasked = batch * heads * seq * seq * 4 * dim;
  for (bool causal : {false, true}) {
    double forward = 0;
    for (int64_t i = 0; i < seq; ++i) {
      for (int64_t j = 0; j < (causal ? i + 1 : seq); ++j) forward += batch * heads * (2 * dim + 2 * dim);  // q k and p v
    }
    b.Op("lego::attention", {q, k, v, causal, 0.3}, {out, lse});
    EXPECT_EQ(Facts(b).flops, forward);
    // Of twice as long a sequence in two blocks, the causal one stands for both.
    for (const int64_t whole : {seq, 2 * seq}) EXPECT_EQ(Conventional(b, whole), causal ? unmasked * whole / seq : 0);
    b.Op("lego::attention_backward", {out, q, k, v, out, lse, causal, 0.3}, {q, k, v});
    EXPECT_EQ(Facts(b).flops, forward * 2.5);
    b.Op("lego::attention", {q, k, v, causal, 0.3, !causal}, {out, lse});  // what a later flag says is not of the mask
    EXPECT_EQ(Facts(b).flops, forward);
  }
}

TEST(OpFactsTest, AttentionCountsPairsInTheWindow) {
  const int64_t batch = 2, heads = 4, seq = 7, dim = 8;
  for (const int64_t window : {1, 3, 7, 9}) {
    TraceBuilder b;
    auto q = b.New(v1::BFLOAT16, {batch, heads, seq, dim}), lse = b.New(v1::FLOAT32, {batch, heads, seq});
    double pairs = 0;
    for (int64_t i = 0; i < seq; ++i) {
      for (int64_t j = 0; j < seq; ++j) pairs += j <= i && i - j < window;
    }
    EXPECT_EQ(CausalPairs(seq, window), pairs);
    b.Op("lego::attention.window", {q, q, q, window, 0.3}, {q, lse});
    EXPECT_EQ(Facts(b).flops, 4 * dim * batch * heads * pairs);
    EXPECT_EQ(Conventional(b, seq), 4 * dim * batch * heads * seq * std::min(window, seq));
    b.Op("lego::attention_backward.window", {q, q, q, q, q, lse, window, 0.3}, {q, q, q});
    EXPECT_EQ(Facts(b).flops, 10 * dim * batch * heads * pairs);
  }
  EXPECT_EQ(CausalPairs(7, 0), 28);
}

TEST(OpFactsTest, BroadcastCountsOnceAndSameTensorCountsOnce) {
  TraceBuilder b;
  auto x = b.New(v1::FLOAT32, {4, 6});
  auto row = b.View(b.AddStorage(6 * 4), v1::FLOAT32, {4, 6}, {0, 1});
  auto out = b.New(v1::FLOAT32, {4, 6});
  b.Op("aten::mul.Tensor", {x, row}, {out});
  EXPECT_EQ(Facts(b).read_bytes, 4 * (24 + 6));
  EXPECT_EQ(Facts(b).written_bytes, 4 * 24);
  b.Op("aten::mul.Tensor", {x, x}, {out});
  EXPECT_EQ(Facts(b).read_bytes, 4 * 24);
}

TEST(OpFactsTest, InPlaceReadsAndWritesOverwritingOnlyWrites) {
  TraceBuilder b;
  auto x = b.New(v1::FLOAT32, {10}), y = b.New(v1::FLOAT32, {10});
  b.Op("aten::add_.Tensor", {x, y, int64_t{1}}, {x}, 1);
  EXPECT_EQ(Facts(b).read_bytes, 80);
  EXPECT_EQ(Facts(b).written_bytes, 40);
  b.Op("aten::copy_", {x, y, false}, {x}, 1);
  EXPECT_EQ(Facts(b).read_bytes, 40);
  EXPECT_EQ(Facts(b).written_bytes, 40);
  b.Op("aten::_foreach_mul_.Scalar", {TraceBuilder::List{{x, y}}, 2.0}, {}, 1);
  EXPECT_EQ(Facts(b).read_bytes, 80);
  EXPECT_EQ(Facts(b).written_bytes, 80);
}

TEST(OpFactsTest, LookupsReadOnlyWhatTheyNeed) {
  TraceBuilder b;
  auto table = b.New(v1::FLOAT32, {1000, 8}), ids = b.New(v1::INT64, {5}), rows = b.New(v1::FLOAT32, {5, 8});
  b.Op("aten::embedding", {table, ids}, {rows});
  EXPECT_EQ(Facts(b).read_bytes, 5 * 8 * 4 + 5 * 8);
  EXPECT_EQ(Facts(b).flops, 5 * 8);
  auto scores = b.New(v1::FLOAT32, {5, 1000}), loss = b.New(v1::FLOAT32, {}), weight = b.New(v1::FLOAT32, {});
  b.Op("aten::nll_loss_forward", {scores, ids}, {loss, weight});
  EXPECT_EQ(Facts(b).read_bytes, 5 * 4 + 5 * 8);
  auto gradient = b.New(v1::FLOAT32, {5, 1000});
  b.Op("aten::nll_loss_backward", {loss, scores, ids}, {gradient});
  EXPECT_EQ(Facts(b).read_bytes, 0);
  EXPECT_EQ(Facts(b).written_bytes, 5 * 1000 * 4);
  b.Op("aten::index_put_", {table, TraceBuilder::List{{ids}}, rows, true}, {table}, 1);
  EXPECT_EQ(Facts(b).written_bytes, 5 * 8 * 4);
}

TEST(OpFactsTest, ViewsCostNothing) {
  TraceBuilder b;
  auto x = b.New(v1::FLOAT32, {4, 6});
  b.Op("aten::t", {x}, {b.View(b.StorageOf(x), v1::FLOAT32, {6, 4}, {1, 6})});
  EXPECT_EQ(Facts(b).bytes(), 0);
  EXPECT_EQ(Facts(b).flops, 0);
}

TEST(OpFactsTest, SignatureHasShapesAndConstantsButNoIdentity) {
  TraceBuilder b;
  auto x = b.New(v1::FLOAT32, {4}), y = b.New(v1::FLOAT32, {4}), z = b.New(v1::FLOAT32, {5});
  auto signature = [&] { return SignatureOf(graph::InstructionView(b.trace(), b.trace().instructions.back())); };
  b.Op("aten::mul.Scalar", {x, 2.0}, {y});
  std::string first = signature();
  b.Op("aten::mul.Scalar", {y, 2.0}, {x});
  EXPECT_EQ(signature(), first);
  b.Op("aten::mul.Scalar", {y, 3.0}, {x});
  EXPECT_NE(signature(), first);
  b.Op("aten::mul.Scalar", {z, 2.0}, {z});
  EXPECT_NE(signature(), first);
}

}  // namespace
}  // namespace legoai::sim
