// Gradients of norms under the pass "fuse": where their first part goes into a kernel, and where they stay whole. That kernels
// compute the same is tested in worker/graph/fused_operator_test.cc, on whole steps in tests/integration/fuse_test.cc.
#include "core/trace/passes/norm_gradients.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "core/trace/passes/testing/fuse_step.h"

namespace legoai::graph {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using passes_testing::Fused;
using passes_testing::kShape;
using passes_testing::Operators;
using passes_testing::Step;
using Tensor = TraceBuilder::Tensor;

// The gradient of a norm, of the sum of two branches' gradients, and the sum of the residual's. `in_place`: as autograd adds up.
struct NormGradientStep : Step {
  Tensor of_weight{}, of_bias{}, of_x{}, sum{}, total{};

  void Run(bool is_layer_norm, bool in_place, const std::string& between = "") {
    phase = Phase::kBackward;
    const Tensor up = Input("up", kShape), gate = Input("gate", kShape), x = Input("x", kShape), weight = Input("weight", {8});
    const Tensor residual = Input("residual", kShape);
    sum = up;
    if (in_place) {
      Op("aten::add_.Tensor", {up, gate, int64_t{1}}, {up}, 1);
    } else {
      sum = Add(up, gate);
    }
    Gradient(is_layer_norm, sum, x, weight);
    if (between == "read") seen = Make("test::product", {residual});
    if (between == "write") Op("test::overwrite", {residual}, {}, 1);
    total = residual;
    if (in_place) {
      Op("aten::add_.Tensor", {residual, of_x, int64_t{1}}, {residual}, 1);
    } else {
      total = Add(residual, of_x);
    }
    Done(of_x);
  }

  void Gradient(bool is_layer_norm, Tensor grad, Tensor x, Tensor weight) {
    of_x = New(v1::FLOAT32, kShape), of_weight = New(v1::FLOAT32, {8});
    if (!is_layer_norm) {
      Op("lego::rms_norm_backward", {grad, x, weight, Input("rstd", {2, 3})}, {of_x, of_weight});
      return;
    }
    of_bias = New(v1::FLOAT32, {8});
    const Tensor mean = Input("mean", {2, 3, 1}), rstd = Input("rstd", {2, 3, 1});
    Op("aten::native_layer_norm_backward",
       {grad, x, std::vector<int64_t>{8}, mean, rstd, weight, weight, std::vector<bool>{true, true, true}},
       {of_x, of_weight, of_bias});
  }

  Trace End() {
    std::map<std::string, Tensor> outputs = {{"of_weight", of_weight}};
    if (of_bias.value != 0) outputs["of_bias"] = of_bias;
    if (seen.value != 0) outputs["seen"] = seen;
    if (trace().storages[StorageOf(total)].kind == StorageKind::kInner) outputs["total"] = total, outputs["sum"] = sum;
    return Ending(outputs);
  }
  Tensor seen{};
};

TEST(NormGradients, GoIntoAKernelAndLeaveTheWeights) {
  for (const bool in_place : {false, true}) {
    const std::string add = in_place ? " aten::add_.Tensor" : " aten::add.Tensor";
    NormGradientStep rms, layer;
    rms.Run(false, in_place), layer.Run(true, in_place);
    const Trace fused = Fused(rms.End());
    EXPECT_THAT(Operators(fused),
                ElementsAre("fused" + add + " lego::rms_norm_backward" + add, "lego::rms_norm_backward.weight"));
    EXPECT_THAT(*FusedKernelText(fused, fused.instructions.front()), HasSubstr("in FLOAT32 {1,0}")) << "a number of each row";
    EXPECT_THAT(Operators(Fused(layer.End())), ElementsAre("fused" + add + " aten::native_layer_norm_backward" + add,
                                                           "aten::native_layer_norm_backward"));
  }
}

// By itself it stays one operator, as does a layer norm's with one sum behind it: the kernel of both parts reads what it reads
// once, and the part that is left would read it again.
TEST(NormGradients, StayWholeWhereNothingIsSaved) {
  for (const bool is_layer_norm : {false, true}) {
    const std::string name = is_layer_norm ? "aten::native_layer_norm_backward" : "lego::rms_norm_backward";
    NormGradientStep alone;
    const Tensor grad = alone.Input("grad", kShape), x = alone.Input("x", kShape), weight = alone.Input("weight", {8});
    alone.Gradient(is_layer_norm, grad, x, weight);
    alone.total = alone.of_x;
    EXPECT_THAT(Operators(Fused(alone.End())), ElementsAre(name));
    NormGradientStep added;
    const Tensor again = added.Input("grad", kShape), y = added.Input("x", kShape), other = added.Input("weight", {8});
    const Tensor residual = added.Input("residual", kShape);
    added.Gradient(is_layer_norm, again, y, other);
    added.total = added.Add(residual, added.of_x);
    added.Done(added.of_x);
    if (is_layer_norm) {
      EXPECT_THAT(Operators(Fused(added.End())), ElementsAre(name, "aten::add.Tensor"));
    } else {
      EXPECT_THAT(Operators(Fused(added.End())), ElementsAre(name + ".weight", "fused " + name + " aten::add.Tensor"));
    }
  }
}

// The weights' part needs the sum of the branches, so the kernel runs before it: the residual is written ahead of its turn,
// unless somebody looks at it meanwhile.
TEST(NormGradients, AreWrittenAheadOfNobodyWhoReadsOrWrites) {
  for (const std::string between : {"read", "write"}) {
    NormGradientStep step;
    step.Run(false, /*in_place=*/true, between);
    const std::vector<std::string> names = Operators(Fused(step.End()));
    EXPECT_EQ(names.back(), "aten::add_.Tensor") << between;
    EXPECT_EQ(names.front(), "fused aten::add_.Tensor lego::rms_norm_backward") << between;
  }
}

TEST(NormGradients, AreSplitButForThoseThatStayWhole) {
  NormGradientStep step;
  step.Run(false, /*in_place=*/true);
  const Trace trace = step.End();
  const SplitTrace split = SplitNormGradients(trace, {});
  EXPECT_THAT(Operators(split.trace), ElementsAre("aten::add_.Tensor", "lego::rms_norm_backward",
                                                  "lego::rms_norm_backward.weight", "aten::add_.Tensor"));
  EXPECT_EQ(split.input_parts, (std::map<uint32_t, uint32_t>{{1, 1}}));
  const SplitTrace none = SplitNormGradients(trace, {1});
  EXPECT_EQ(Operators(none.trace), Operators(trace));
  EXPECT_TRUE(none.input_parts.empty());
}

}  // namespace
}  // namespace legoai::graph
