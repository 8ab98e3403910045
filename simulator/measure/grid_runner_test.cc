#include "simulator/measure/grid_runner.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>

namespace legoai::sim {
namespace {

// Bytes of one element, by hand.
int64_t Width(v1::DType dtype) { return dtype == v1::FLOAT32 ? 4 : 2; }

const std::vector<GridPoint>& FullGrid() {
  static const auto* const grid = new std::vector<GridPoint>(OperatorGrid(GridSize::kFull));
  return *grid;
}

// Calls `check` with each point of this operator, its facts, and its shape by name.
template <class Check>
void ForEach(const std::string& name, Check check) {
  int seen = 0;
  for (const GridPoint& point : FullGrid()) {
    if (point.call.name != name) continue;
    SCOPED_TRACE(PointName(point));
    const auto facts = FactsOfPoint(point);
    ASSERT_TRUE(facts.ok()) << facts.status();
    check(point, facts->facts, [&](const char* size) { return static_cast<double>(point.shape.at(size)); });
    ++seen;
  }
  EXPECT_GE(seen, 10) << name;
}

TEST(GridFactsTest, AreKnownOfEveryPoint) {
  for (const GridPoint& point : FullGrid()) {
    const auto facts = FactsOfPoint(point);
    ASSERT_TRUE(facts.ok()) << PointName(point) << ": " << facts.status();
    EXPECT_EQ(facts->facts.dtype, point.dtype) << PointName(point);
    EXPECT_GT(facts->facts.bytes(), 0) << PointName(point);
    EXPECT_GE(facts->tensor_bytes, facts->facts.written_bytes) << PointName(point);
    EXPECT_LE(facts->tensor_bytes, int64_t{70} << 30) << PointName(point) << " has no room on a card of 80 GB";
  }
}

TEST(GridFactsTest, ProductsByHand) {
  ForEach("aten::mm", [](const GridPoint& point, const OpFacts& facts, const auto& size) {
    EXPECT_EQ(facts.op_class, OpClass::kMatmul);
    EXPECT_DOUBLE_EQ(facts.flops, 2 * size("m") * size("n") * size("k"));
    EXPECT_EQ(facts.read_bytes, Width(point.dtype) * (size("m") * size("k") + size("k") * size("n")));
    EXPECT_EQ(facts.written_bytes, Width(point.dtype) * size("m") * size("n"));
  });
  ForEach("aten::addmm", [](const GridPoint& point, const OpFacts& facts, const auto& size) {
    EXPECT_DOUBLE_EQ(facts.flops, 2 * size("m") * size("n") * size("k"));
    EXPECT_EQ(facts.read_bytes, Width(point.dtype) * (size("n") + size("m") * size("k") + size("k") * size("n")));
  });
  ForEach("aten::baddbmm", [](const GridPoint&, const OpFacts& facts, const auto& size) {
    EXPECT_DOUBLE_EQ(facts.flops, 2 * size("batch") * size("m") * size("n") * size("k"));
  });
}

// Each query meets all keys, or with a mask those up to its own: two products forward, five backward.
TEST(GridFactsTest, AttentionByHand) {
  const auto pairs = [](const auto& size) {
    const double all = size("seq") * size("seq");
    return size("batch") * size("heads") * (size("causal") == 1 ? (all + size("seq")) / 2 : all);
  };
  ForEach("lego::attention", [&](const GridPoint& point, const OpFacts& facts, const auto& size) {
    EXPECT_DOUBLE_EQ(facts.flops, 2 * 2 * size("head_dim") * pairs(size));
    EXPECT_EQ(facts.read_bytes,
              Width(point.dtype) * size("batch") * size("seq") * size("head_dim") * (size("heads") + 2 * size("kv_heads")));
  });
  ForEach("lego::attention_backward", [&](const GridPoint&, const OpFacts& facts, const auto& size) {
    EXPECT_DOUBLE_EQ(facts.flops, 5 * 2 * size("head_dim") * pairs(size));
  });
}

TEST(GridFactsTest, StreamsByHand) {
  ForEach("aten::silu_backward", [](const GridPoint& point, const OpFacts& facts, const auto& size) {
    EXPECT_EQ(facts.op_class, OpClass::kElementwise);
    EXPECT_EQ(facts.read_bytes, 2 * Width(point.dtype) * size("elements"));
    EXPECT_EQ(facts.written_bytes, Width(point.dtype) * size("elements"));
  });
  // Parameter, gradient and two moments are read, all but the gradient written: 28 bytes for each, or 32 where the gradient
  // counts as written, as the operator's schema has it. Beside them the learning rate and the step.
  ForEach("aten::_fused_adamw_", [](const GridPoint&, const OpFacts& facts, const auto& size) {
    EXPECT_EQ(facts.op_class, OpClass::kOptimizer);
    const double elements = size("tensors") * size("elements");
    EXPECT_GE(static_cast<double>(facts.bytes()), 28 * elements);
    EXPECT_LE(static_cast<double>(facts.bytes()), 32 * elements + 8 * size("tensors") + 8);
  });
  ForEach("lego::rms_norm", [](const GridPoint& point, const OpFacts& facts, const auto& size) {
    EXPECT_EQ(facts.op_class, OpClass::kReduction);
    EXPECT_EQ(facts.read_bytes, Width(point.dtype) * (size("rows") * size("dim") + size("dim")));
    EXPECT_EQ(facts.written_bytes, Width(point.dtype) * size("rows") * size("dim") + 4 * size("rows")) << "one number a row";
  });
}

TEST(GridFactsTest, ACallThatNoOperatorTakesIsNamed) {
  GridPoint point;
  point.call = {"aten::mm", "", {TensorSpec{.sizes = {2, 3}}}};
  EXPECT_NE(FactsOfPoint(point).status().message().find("aten::mm"), std::string::npos) << FactsOfPoint(point).status();
  point.call.arguments.push_back(TensorSpec{.sizes = {4, 5}});
  EXPECT_FALSE(FactsOfPoint(point).ok()) << "3 columns by 4 rows";
  point.call.name = "aten::no_such_operator";
  EXPECT_NE(FactsOfPoint(point).status().message().find("no_such_operator"), std::string::npos);
}

TEST(PointCallTest, EveryQuickPointRunsOnTheCpu) {
  std::set<std::string> operators;
  for (const GridPoint& point : OperatorGrid(GridSize::kQuick)) {
    auto call = PointCall::Create(point, c10::kCPU);
    ASSERT_TRUE(call.ok()) << PointName(point) << ": " << call.status();
    for (int i = 0; i < 2; ++i) {
      const absl::Status status = (*call)->Run();
      ASSERT_TRUE(status.ok()) << PointName(point) << ": " << status;
    }
    operators.insert(point.call.name);
  }
  // What is run here is what is run on a card.
  for (const GridPoint& point : FullGrid()) EXPECT_EQ(operators.count(point.call.name), 1u) << point.call.name;
}

TEST(PointCallTest, WhatFailsIsAStatus) {
  GridPoint point;
  point.call = {"aten::mm", "", {TensorSpec{.sizes = {2, 3}}, TensorSpec{.sizes = {4, 5}}}};
  auto call = PointCall::Create(point, c10::kCPU);
  ASSERT_TRUE(call.ok()) << call.status();
  EXPECT_EQ((*call)->Run().code(), absl::StatusCode::kInternal);
}

}  // namespace
}  // namespace legoai::sim
