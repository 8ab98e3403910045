// Capture truth and execution truth, for every recipe of cases.h and every rank: the step captured without data is the step that
// runs, and its Trace, executed, is that step bit by bit, three steps in a row.
#include "simulator/capture/capture.h"

#include <ATen/core/Tensor.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "core/trace/verify.h"
#include "tests/integration/cases.h"
#include "tests/integration/train_in_processes.h"
#include "worker/graph/executor.h"
#include "worker/graph/fake/testing/capture_recorder.h"

namespace legoai::integration {
namespace {

using sim::testing::SameBits;
using ::testing::IsEmpty;

constexpr int64_t kSteps = 3, kRecordedStep = 1;

void ExpectSameState(train::TrainStep& eager, train::TrainStep& executed, int64_t step) {
  const auto left = eager.State(), right = executed.State();
  ASSERT_EQ(left.size(), right.size());
  for (size_t i = 0; i < left.size(); ++i) {
    if (left[i].tensor.storage().nbytes() == 0) continue;  // gathered parameters are resized away between steps
    EXPECT_TRUE(SameBits(left[i].tensor, right[i].tensor)) << left[i].name << " after step " << step;
  }
}

// The eager step on real tensors, recorded once.
train::TrainStep::Result RunEager(train::TrainStep& step, bool record, const graph::Trace& captured) {
  if (!record) return Must(step.Run());
  graph::Recorder recorder;
  recorder.SetRecording(false);
  train::TrainStep::Result result;
  const graph::Trace real = Must(sim::RecordStep(recorder, step, &result));
  EXPECT_THAT(graph::Differences(real, captured), IsEmpty());
  EXPECT_THAT(real.warnings, IsEmpty());
  return result;
}

// Gives the number of updates in the steps.
int64_t CheckRank(const Case& test_case, int64_t rank, const parallel::ResolvedRecipe& resolved) {
  // Built first: it takes the event numbers that a capture's step takes.
  auto eager = Must(train::TrainStep::Build(resolved, at::kCPU, /*materialize=*/true));
  auto executed = Must(train::TrainStep::Build(resolved, at::kCPU, /*materialize=*/true));
  const graph::Trace trace = Must(sim::CaptureStep(resolved, rank)).trace;
  EXPECT_THAT(trace.warnings, IsEmpty());
  EXPECT_THAT(graph::Races(trace), IsEmpty());
  EXPECT_THAT(graph::BadReads(trace), IsEmpty());
  auto executor = Must(graph::Executor::Create(trace, at::kCPU));
  Must(executed->GatherParameters());
  for (const auto& state : executed->State()) Must(executor->Bind(state.name, state.tensor));
  for (int64_t i = 0; i < kSteps; ++i) {
    FillInputs(eager->inputs(), test_case, resolved, rank, i);
    FillInputs(executed->inputs(), test_case, resolved, rank, i);
    const auto result = RunEager(*eager, i == kRecordedStep, trace);
    Must(executor->Run());
    EXPECT_TRUE(SameBits(result.loss, Must(executor->Output("loss")))) << "loss of step " << i;
    EXPECT_TRUE(SameBits(result.grad_norm, Must(executor->Output("grad_norm")))) << "gradient norm of step " << i;
    ExpectSameState(*eager, *executed, i);
  }
  return std::lround(eager->optimizer().step().item<float>());
}

class CaptureTest : public testing::TestWithParam<Case> {};

TEST_P(CaptureTest, TheCapturedStepIsTheRealOneAndExecutes) {
  RunCase(GetParam(), [&](int64_t rank, comm::Runtime&, const parallel::ResolvedRecipe& resolved) {
    CheckRank(GetParam(), rank, resolved);
    return std::string();
  });
}

// The least power of two at which the first step's gradients overflow.
double OverflowingScale(Case test_case) {
  test_case.recipe.mutable_training()->set_initial_loss_scale(0x1p40);
  const auto found = RunCase(test_case, [&](int64_t rank, comm::Runtime&, const parallel::ResolvedRecipe& resolved) {
    auto step = Must(train::TrainStep::Build(resolved, at::kCPU, /*materialize=*/true));
    FillInputs(step->inputs(), test_case, resolved, rank, 0);
    while (step->optimizer().step().item<float>() == 0) Must(step->Run());
    return std::to_string(2 * step->optimizer().loss_scale()->scale().item<float>());
  });
  return std::stod(found.at(0));
}

// Of the three steps the first is skipped and another is not, by the captured step as by the real one and on every rank.
TEST(CaptureOfLossScaling, SkipsAsTheRealStep) {
  int skipping = 0;
  for (Case test_case : ParityCases()) {
    auto* training = test_case.recipe.mutable_training();
    if (training->mixed_precision_param() != v1::FLOAT16) continue;
    ++skipping;
    training->set_initial_loss_scale(OverflowingScale(test_case));
    SCOPED_TRACE(test_case.name);
    const auto updates = RunCase(test_case, [&](int64_t rank, comm::Runtime&, const parallel::ResolvedRecipe& resolved) {
      return std::to_string(CheckRank(test_case, rank, resolved));
    });
    EXPECT_THAT(updates, ::testing::Each(::testing::AnyOf("1", "2"))) << "of three steps";
    EXPECT_THAT(updates, ::testing::Each(updates[0])) << "ranks agree";
  }
  EXPECT_GE(skipping, 6);
}

INSTANTIATE_TEST_SUITE_P(Recipes, CaptureTest, testing::ValuesIn(ParityCases()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace legoai::integration
