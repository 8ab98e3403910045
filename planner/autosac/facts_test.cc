#include "planner/autosac/facts.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "core/hardware/catalog.h"
#include "core/trace/testing/trace_builder.h"

namespace legoai::planner {
namespace {

using graph::Phase;
using graph::TraceBuilder;

constexpr int64_t kRows = 64, kColumns = 128;
constexpr int64_t kMatrix = kRows * kColumns * 4;

// Two recomputed blocks in one pass, each: a product, silu of it, silu in place, and an addition that recomputation does not
// reach.
class Step {
 public:
  Step() {
    for (const char* path :
         {"model.layers.0.mlp.up_proj", "model.layers.0", "model.layers.1.mlp.up_proj", "model.layers.1", "loss"}) {
      builder_.AddModule(path);
    }
    weight_ = builder_.Input("weight", {kColumns, kColumns});
    const auto input = builder_.Input("x", {kRows, kColumns});
    for (uint32_t block = 0; block < 2; ++block) Forward(block, input);
    builder_.module = 5;
    builder_.Op("aten::mul", {input, input}, {Matrix()});
    for (uint32_t block = 2; block-- > 0;) Backward(block, input);
  }
  const graph::Trace& trace() const { return builder_.trace(); }

 private:
  TraceBuilder::Tensor Matrix(graph::Category category = graph::Category::kActivation) {
    return builder_.New(v1::FLOAT32, {kRows, kColumns}, graph::StorageKind::kInner, category);
  }
  // Gives the outputs of product and silu.
  std::pair<TraceBuilder::Tensor, TraceBuilder::Tensor> Run(uint32_t block, TraceBuilder::Tensor input) {
    builder_.module = 2 * block + 1;
    const auto product = Matrix();
    const auto turned = builder_.View(builder_.StorageOf(weight_), v1::FLOAT32, {kColumns, kColumns}, {1, kColumns});
    builder_.Op("aten::t", {weight_}, {turned});
    builder_.Op("aten::mm", {input, turned}, {product});
    builder_.module = 2 * block + 2;
    const auto silu = Matrix();
    builder_.Op("aten::silu", {product}, {silu});
    builder_.Op("aten::mul_.Tensor", {silu, product}, {silu}, 1);
    return {product, silu};
  }
  void Forward(uint32_t block, TraceBuilder::Tensor input) {
    builder_.phase = Phase::kForward;
    const auto [product, silu] = Run(block, input);
    const auto sum = Matrix();
    builder_.Op("aten::add.Tensor", {silu, input}, {sum});
    builder_.Free(builder_.StorageOf(product));
    builder_.Free(builder_.StorageOf(silu));
  }
  void Backward(uint32_t block, TraceBuilder::Tensor input) {
    builder_.phase = Phase::kRecompute;
    const auto [product, silu] = Run(block, input);
    builder_.Free(builder_.StorageOf(silu));
    builder_.phase = Phase::kBackward;
    const auto gradient = Matrix(graph::Category::kActivationGradient);
    builder_.Op("aten::mul", {product, product}, {gradient});
    builder_.Op("aten::mul", {gradient, product}, {Matrix(graph::Category::kActivationGradient)});
    builder_.Free(builder_.StorageOf(product));
  }

  TraceBuilder builder_;
  TraceBuilder::Tensor weight_{};
};

v1::Cluster OneGpu() { return *sim::ParseCluster("h100-sxm-80:1x1"); }

TEST(Facts, AreThoseOfEachOperatorOfABlock) {
  const Step step;
  const auto facts = FactsOf(step.trace(), OneGpu());
  ASSERT_TRUE(facts.ok()) << facts.status();
  ASSERT_EQ(facts->blocks.size(), 2u);
  for (const BlockFacts& block : facts->blocks) {
    ASSERT_EQ(block.operators.size(), 5u);
    const OperatorFacts &view = block.operators[0], &product = block.operators[1], &silu = block.operators[2];
    const OperatorFacts &in_place = block.operators[3], &sum = block.operators[4];
    EXPECT_TRUE(view.view_like);
    EXPECT_EQ(view.bytes, 0);
    EXPECT_EQ(view.seconds, 0);
    EXPECT_EQ(product.name, "aten::mm");
    EXPECT_EQ(product.module, "mlp.up_proj");
    EXPECT_EQ(product.bytes, kMatrix);
    EXPECT_GT(product.seconds, 0);
    EXPECT_TRUE(product.saved) << "its storage is freed after the backward that reads it";
    EXPECT_TRUE(product.recomputed && product.keepable);
    EXPECT_EQ(silu.module, "");
    EXPECT_FALSE(silu.saved) << "its storage is gone when recomputation ends";
    EXPECT_EQ(in_place.leader, 2) << "writes what silu made";
    EXPECT_EQ(in_place.bytes, 0);
    EXPECT_FALSE(in_place.keepable);
    EXPECT_EQ(sum.name, "aten::add");
    EXPECT_FALSE(sum.recomputed);
    EXPECT_EQ(block.TotalBytes(), 2 * kMatrix) << "what recomputation does not reach is not of it";
    EXPECT_EQ(block.SavedBytes(), kMatrix);
    EXPECT_NEAR(block.TotalSeconds(), product.seconds + silu.seconds + in_place.seconds, 1e-12);
  }
}

// While block 1 runs backward, block 0 waits; during the loss both do.
TEST(Facts, SayWhichBlocksWaitWhen) {
  const Step step;
  const auto facts = FactsOf(step.trace(), OneGpu());
  ASSERT_TRUE(facts.ok());
  int64_t both = 0, first = 0, most = 0;
  for (const MemoryState& state : facts->states) {
    if (state.waiting == std::vector<int64_t>{1, 1}) both = state.bytes;
    if (state.waiting == std::vector<int64_t>{1, 0}) first = state.bytes;
    most = std::max(most, state.bytes);
    EXPECT_FALSE(state.waiting == (std::vector<int64_t>{0, 1})) << "block 1 never waits alone";
  }
  const int64_t resident = kColumns * kColumns * 4 + kMatrix;
  EXPECT_EQ(both, resident + 3 * kMatrix) << "both outputs and the loss";
  EXPECT_GT(first, both) << "with what is recomputed, and gradients";
  EXPECT_GE(most, first);
}

TEST(Facts, NeedARecomputedBlock) {
  TraceBuilder builder;
  const auto x = builder.Input("x", {4, 4});
  builder.Op("aten::mul", {x, x}, {builder.New(v1::FLOAT32, {4, 4})});
  EXPECT_EQ(FactsOf(builder.trace(), OneGpu()).status().code(), absl::StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace legoai::planner
