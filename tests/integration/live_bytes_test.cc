// Memory truth at operator boundaries, for every recipe of cases.h and every rank: before each operator of a real step, the bytes
// that CPU tensors hold, counted by the allocator, are those that the memory simulator has alive in the Trace captured without
// data.
#include <ATen/core/Tensor.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <vector>

#include "simulator/capture/capture.h"
#include "simulator/memory/memory_simulator.h"
#include "tests/integration/cases.h"
#include "tests/integration/train_in_processes.h"
#include "worker/comm/cpu_tensors.h"

namespace legoai::integration {
namespace {

// Runs the real kernels and counts before each.
class CountingRunner : public graph::OperatorRunner {
 public:
  void Run(const c10::OperatorHandle& op, c10::DispatchKeySet after, torch::jit::Stack* stack, size_t) override {
    counts_.push_back(comm::CpuLiveBytes());
    op.redispatchBoxed(after, stack);
  }
  const std::vector<int64_t>& counts() const { return counts_; }

 private:
  std::vector<int64_t> counts_;
};

// Before each operator, external storages included.
std::vector<int64_t> LiveBytes(const graph::Trace& trace) {
  sim::MemoryOptions options;
  options.kind = v1::CPU;
  const sim::MemoryProfile profile = Must(sim::SimulateMemory(trace, options));
  std::vector<int64_t> before_operators;
  for (size_t i = 0; i < trace.instructions.size(); ++i) {
    if (trace.instructions[i].kind != graph::Instruction::Kind::kOperator) continue;
    before_operators.push_back(i == 0 ? profile.start_bytes : profile.live_bytes[i - 1]);
  }
  return before_operators;
}

void CheckRank(const Case& test_case, int64_t rank, const parallel::ResolvedRecipe& resolved) {
  comm::InstallCpuMemoryCounter();
  const graph::Trace captured = Must(sim::CaptureStep(resolved, rank)).trace;
  const int64_t others = comm::CpuLiveBytes();  // of nobody's step
  auto step = Must(train::TrainStep::Build(resolved, at::kCPU, /*materialize=*/true));
  FillInputs(step->inputs(), test_case, resolved, rank, 0);
  Must(step->Run());  // whatever is made once is there now
  CountingRunner runner;
  graph::Recorder recorder(&runner);
  recorder.SetRecording(false);
  Must(sim::RecordStep(recorder, *step));
  const std::vector<int64_t> predicted = LiveBytes(captured), &counted = runner.counts();
  ASSERT_EQ(predicted.size(), counted.size());
  ASSERT_GT(predicted.size(), 100u);
  int64_t worst = 0;
  size_t differing = 0, at = 0;
  for (size_t i = 0; i < counted.size(); ++i) {
    const int64_t difference = counted[i] - predicted[i] - others;
    differing += difference != 0;
    if (std::abs(difference) > std::abs(worst)) worst = difference, at = i;
  }
  EXPECT_EQ(differing, 0u) << "operators before which it differs, by " << worst << " bytes at operator " << at << " of "
                           << counted.size();
}

class LiveBytesTest : public testing::TestWithParam<Case> {};

TEST_P(LiveBytesTest, TheTraceHoldsWhatTheAllocatorCounts) {
  RunCase(GetParam(), [&](int64_t rank, comm::Runtime&, const parallel::ResolvedRecipe& resolved) {
    CheckRank(GetParam(), rank, resolved);
    return std::string();
  });
}

INSTANTIATE_TEST_SUITE_P(Recipes, LiveBytesTest, testing::ValuesIn(ParityCases()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace legoai::integration
