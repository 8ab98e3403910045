// Memory truth at operator boundaries, for every recipe of cases.h and every rank: before each operator of a real step, the bytes
// that CPU tensors hold, counted by the allocator, are those of the storages alive in the Trace captured without data.
#include <ATen/core/Tensor.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <vector>

#include "simulator/capture/capture.h"
#include "tests/integration/cases.h"
#include "tests/integration/train_in_processes.h"
#include "worker/comm/cpu_memory.h"
#include "worker/graph/operands.h"

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

// Bytes of the storages alive before each operator, bound ones included.
std::vector<int64_t> LiveBytes(const graph::Trace& trace) {
  std::vector<int64_t> bytes(trace.storages.size(), -1), before_operators;  // -1: not born
  int64_t live = 0;
  auto set = [&](uint32_t storage, int64_t now) {
    live += now - std::max<int64_t>(bytes[storage], 0);
    bytes[storage] = now;
  };
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (trace.storages[i].kind != graph::StorageKind::kInner) set(i, trace.storages[i].bytes);
  }
  for (const auto& instruction : trace.instructions) {
    if (instruction.kind == graph::Instruction::Kind::kFree) set(instruction.immediate, 0);
    if (instruction.kind == graph::Instruction::Kind::kResize) set(instruction.operator_index, instruction.immediate);
    if (instruction.kind != graph::Instruction::Kind::kOperator) continue;
    before_operators.push_back(live);
    for (uint32_t value : graph::OperandsOf(trace, instruction).results) {
      const uint32_t storage = trace.values[value].storage;
      if (bytes[storage] < 0) set(storage, trace.storages[storage].bytes);
    }
    if (const auto resize = graph::StorageResizeOf(trace, instruction)) set(resize->storage, resize->bytes);
  }
  return before_operators;
}

void CheckRank(const Case& test_case, int64_t rank, const parallel::ParallelDims& dims) {
  comm::InstallCpuMemoryCounter();
  const graph::Trace captured = Must(sim::CaptureStep(test_case.model, test_case.recipe, dims, rank)).trace;
  auto step = Must(train::TrainStep::Build(test_case.model, test_case.recipe, dims, at::kCPU, /*materialize=*/true));
  FillInputs(step->inputs(), test_case, dims, rank, 0);
  Must(step->Run());  // whatever is made once is there now
  CountingRunner runner;
  graph::Recorder recorder(&runner);
  recorder.SetRecording(false);
  Must(sim::RecordStep(recorder, *step));
  const std::vector<int64_t> predicted = LiveBytes(captured), &counted = runner.counts();
  ASSERT_EQ(predicted.size(), counted.size());
  ASSERT_GT(predicted.size(), 100u);
  // Tensors of nobody's step: what else this process holds.
  const int64_t others = counted[0] - predicted[0];
  EXPECT_GE(others, 0);
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
  RunCase(GetParam(), [&](int64_t rank, comm::Runtime&, const parallel::ParallelDims& dims) {
    CheckRank(GetParam(), rank, dims);
    return std::string();
  });
}

INSTANTIATE_TEST_SUITE_P(Recipes, LiveBytesTest, testing::ValuesIn(ParityCases()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace legoai::integration
