// Every recipe of cases.h trains the same with compile.enable: losses, gradient norms, held-out losses, parameters and optimizer
// state are those of the eager step, bit by bit; either goes on from the other; and a step takes the same memory.
#include <ATen/core/Tensor.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/integration/cases.h"
#include "tests/integration/train_in_processes.h"
#include "worker/comm/cpu_tensors.h"
#include "worker/comm/step_timeline.h"
#include "worker/graph/fake/testing/capture_recorder.h"
#include "worker/train/step_breakdown.h"
#include "worker/train/step_program.h"

namespace legoai::integration {
namespace {

using sim::testing::SameBits;

constexpr int64_t kSteps = 3;  // and then more, in which each way goes on from the other
// Loss and gradient norm: an executor keeps those of a run until the next begins, so they are there before it.
constexpr int64_t kKeptBytes = 2 * sizeof(float);

Case Compiled(Case test_case) {
  test_case.recipe.mutable_compile()->set_enable(true);
  test_case.recipe.mutable_validation()->set_enable(true);
  test_case.recipe.mutable_training()->set_validation_fraction(0.1);
  return test_case;
}

void ExpectSameState(train::TrainStep& left, train::TrainStep& right, int64_t step) {
  const auto a = left.State(), b = right.State();
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i].tensor.storage().nbytes() == 0) continue;  // gathered parameters are resized away between steps
    EXPECT_TRUE(SameBits(a[i].tensor, b[i].tensor)) << a[i].name << " after step " << step;
  }
}

void ExpectSame(const train::TrainStep::Result& a, const train::TrainStep::Result& b, int64_t step) {
  EXPECT_TRUE(SameBits(a.loss, b.loss)) << "loss of step " << step;
  EXPECT_TRUE(SameBits(a.grad_norm, b.grad_norm)) << "gradient norm of step " << step;
}

// What a flight recorder is told of a step, in its order: what each call is, of which group, on which stream.
std::vector<std::string> Calls(const comm::StepTimes& times) {
  std::vector<std::string> calls;
  for (const auto& call : times.calls) {
    calls.push_back(absl::StrCat(call.kind, " of group ", call.group, " on stream ", call.stream));
  }
  return calls;
}

struct Measured {
  train::TrainStep::Result result;
  std::vector<std::string> calls;
  train::StepBreakdown breakdown;
  int64_t peak_bytes = 0;  // above what was there before
};

template <class Run>
Measured Measure(comm::Runtime& runtime, Run run) {
  comm::StepTimeline timeline;
  comm::ResetCpuPeakBytes();
  const int64_t before = comm::CpuLiveBytes();
  timeline.Begin();
  Measured measured;
  measured.result = Must(run());
  const comm::StepTimes times = Must(timeline.End());
  measured.calls = Calls(times);
  measured.breakdown = train::BreakdownOf(times, runtime.groups());
  measured.peak_bytes = comm::CpuPeakBytes() - before;
  return measured;
}

void ExpectSameAccount(const Measured& eager, const Measured& compiled) {
  EXPECT_EQ(compiled.calls, eager.calls);
  EXPECT_EQ(compiled.breakdown.forward_ns > 0, eager.breakdown.forward_ns > 0);
  EXPECT_EQ(compiled.breakdown.backward_ns > 0, eager.breakdown.backward_ns > 0);
  EXPECT_GT(compiled.breakdown.optimizer_ns, 0);
  EXPECT_EQ(compiled.peak_bytes + kKeptBytes, eager.peak_bytes);
}

void CheckRank(const Case& test_case, int64_t rank, comm::Runtime& runtime, const parallel::ResolvedRecipe& resolved) {
  comm::InstallCpuMemoryCounter();
  auto eager = Must(train::TrainStep::Build(resolved, at::kCPU, /*materialize=*/true));
  auto compiled = Must(train::TrainStep::Build(resolved, at::kCPU, /*materialize=*/true));
  std::string warning;
  const train::StepPrograms programs = Must(train::AdoptPrograms(
      train::CapturePrograms(resolved, at::kCPU), resolved.recipe().compile(), *compiled, at::kCPU, &warning));
  const auto fill = [&](int64_t step) {
    FillInputs(eager->inputs(), test_case, resolved, rank, step);
    FillInputs(compiled->inputs(), test_case, resolved, rank, step);
  };
  for (int64_t i = 0; i < kSteps; ++i) {
    fill(i);
    const Measured own = Measure(runtime, [&] { return eager->Run(); });
    const Measured program = Measure(runtime, [&] { return programs.step->Run(); });
    ExpectSame(own.result, program.result, i);
    if (i > 0) ExpectSameAccount(own, program);  // a first step makes what stays
    const at::Tensor held_out = Must(eager->Evaluate());
    EXPECT_TRUE(SameBits(held_out, Must(programs.evaluation->Run()).loss)) << "held-out loss after step " << i;
    ExpectSameState(*eager, *compiled, i);
  }
  fill(kSteps);
  ExpectSame(Must(eager->Run()), Must(compiled->Run()), kSteps);
  fill(kSteps + 1);
  ExpectSame(Must(eager->Run()), Must(programs.step->Run()), kSteps + 1);
  ExpectSameState(*eager, *compiled, kSteps + 1);
}

class GraphMode : public testing::TestWithParam<Case> {};

TEST_P(GraphMode, TrainsAsTheEagerStep) {
  const Case test_case = Compiled(GetParam());
  RunCase(test_case, [&](int64_t rank, comm::Runtime& runtime, const parallel::ResolvedRecipe& resolved) {
    CheckRank(test_case, rank, runtime, resolved);
    return std::string();
  });
}

INSTANTIATE_TEST_SUITE_P(Recipes, GraphMode, testing::ValuesIn(ParityCases()), [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace legoai::integration
