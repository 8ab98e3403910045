#include "simulator/engine/step_details.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <string>

#include "simulator/engine/testing/example_pipeline.h"

namespace legoai::sim {
namespace {

using testing::Example;

v1::Estimate DetailsOf(const Example& example) {
  v1::Estimate estimate;
  const absl::Status status = AddStepDetails(example.stages, example.cluster, example.simulation, &estimate);
  EXPECT_TRUE(status.ok()) << status;
  return estimate;
}

TEST(StepDetails, ThePartsOfTheCriticalPathAddUpToTheStep) {
  const uint32_t seed = std::random_device()();
  SCOPED_TRACE(::testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  for (int i = 0; i < 20; ++i) {
    const int64_t stages = 1 + random() % 4, microbatches = 1 + random() % 6, width = 1 + random() % 5000;
    SCOPED_TRACE(::testing::Message() << stages << " stages, " << microbatches << " microbatches, width " << width);
    const Example example(stages, microbatches, width);
    const v1::Estimate details = DetailsOf(example);
    double sum = 0, before = details.critical_path(0).seconds();
    for (const auto& part : details.critical_path()) {
      sum += part.seconds();
      EXPECT_LE(part.seconds(), before) << "the largest first";
      EXPECT_GE(part.tasks(), 1);
      EXPECT_LT(part.stage(), stages);
      before = part.seconds();
    }
    EXPECT_NEAR(sum, example.simulation.step_seconds, 1e-9 * example.simulation.step_seconds);
  }
}

// Compute-bound stages that wait for each other: the way leads through the first stage's work and the last one's.
TEST(StepDetails, TheCriticalPathOfAPipelineLeadsThroughItsStages) {
  const Example example(/*stages=*/2, /*microbatches=*/4, /*width=*/1 << 20);
  std::map<std::string, std::map<int64_t, double>> seconds;
  const v1::Estimate details = DetailsOf(example);
  for (const auto& part : details.critical_path()) seconds[part.kind()][part.stage()] += part.seconds();
  EXPECT_GT(seconds["forward"][0], 0);
  EXPECT_GT(seconds["backward"][1], 0);
  const double work = seconds["forward"][0] + seconds["forward"][1] + seconds["recompute"][0] + seconds["recompute"][1] +
                      seconds["backward"][0] + seconds["backward"][1];
  EXPECT_GT(work, 0.9 * example.simulation.step_seconds);
}

// Three products of one shape in each of three phases, four microbatches: 12 calls of each kind.
TEST(StepDetails, EqualCallsAreOne) {
  const Example example(/*stages=*/1, /*microbatches=*/4);
  const v1::Estimate details = DetailsOf(example);
  ASSERT_GE(details.largest_operators_size(), 6);
  double all = 0, before = details.largest_operators(0).seconds();
  std::map<std::string, int64_t> products;
  for (const auto& op : details.largest_operators()) {
    all += op.seconds();
    EXPECT_LE(op.seconds(), before) << "the largest first";
    before = op.seconds();
    if (op.name() != "aten::mm") continue;
    products[op.phase()] = op.calls();
    EXPECT_EQ(op.shapes(), "bfloat16[4096,512] bfloat16[512,512] -> bfloat16[4096,512]");
    EXPECT_EQ(op.flops(), 2.0 * 4096 * 512 * 512);
    EXPECT_EQ(op.bytes(), 2.0 * (4096 * 512 + 512 * 512 + 4096 * 512));
  }
  EXPECT_EQ(products, (std::map<std::string, int64_t>{{"forward", 12}, {"recompute", 12}, {"backward", 12}}));
  double busy = 0;
  for (const TaskId id : example.simulation.lowered.compute[0]) busy += example.simulation.lowered.program.tasks()[id].seconds;
  EXPECT_LE(details.largest_operators_size(), 10);
  EXPECT_NEAR(all, busy, 1e-9 * busy) << "fewer than ten kinds: nothing is left out";
}

TEST(StepDetails, ModulesOfAllLayersAreTogether) {
  const v1::Estimate details = DetailsOf(Example(/*stages=*/1, /*microbatches=*/2));
  ASSERT_EQ(details.largest_modules_size(), 2);
  EXPECT_EQ(details.largest_modules(0).module(), "model.layers.*.mlp");
  EXPECT_EQ(details.largest_modules(0).modules(), 2);
  EXPECT_EQ(details.largest_modules(1).module(), "model.layers.*.norm");
  EXPECT_EQ(details.largest_modules(1).modules(), 1);
  for (const auto& module : details.largest_modules()) {
    EXPECT_NEAR(module.backward_seconds(), 2 * module.forward_seconds(), 1e-9) << "recomputation and backward do the same here";
  }
  EXPECT_NEAR(details.largest_modules(0).forward_seconds(), 2 * details.largest_modules(1).forward_seconds(), 1e-9);
}

}  // namespace
}  // namespace legoai::sim
