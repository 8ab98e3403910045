// Capture truth on a GPU: one real step, recorded on the device, beside the step captured without data; and the bytes that the
// device's allocator counts before each operator, beside the memory simulator's.
#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <gmock/gmock.h>

#include <cstdio>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/recipe/resolved_recipe.h"
#include "simulator/capture/capture.h"
#include "simulator/memory/memory_simulator.h"
#include "tests/gpu/device_differences.h"
#include "tests/gpu/gpu_test.h"
#include "tests/gpu/one_card_cases.h"
#include "worker/comm/cpu_tensors.h"

namespace legoai::gpu {
namespace {

using integration::Case;
using integration::Must;
using ::testing::IsEmpty;

// Runs the real kernels and counts before each.
class CountingRunner : public graph::OperatorRunner {
 public:
  explicit CountingRunner(int64_t (*count)()) : count_(count) {}
  void Run(const c10::OperatorHandle& op, c10::DispatchKeySet after, torch::jit::Stack* stack, size_t) override {
    counts_.push_back(count_());
    op.redispatchBoxed(after, stack);
  }
  const std::vector<int64_t>& counts() const { return counts_; }

 private:
  int64_t (*count_)();
  std::vector<int64_t> counts_;
};

struct Recording {
  graph::Trace recorded, captured;
  std::vector<int64_t> counted;
  int64_t peak = 0;  // of the recorded step, by the device
};

void Print(const std::vector<std::string>& lines) {
  for (const std::string& line : lines) std::printf("  %s\n", line.c_str());
}

Recording Record(const Case& test_case, c10::Device device, int64_t (*count)()) {
  const auto resolved = Must(parallel::ResolvedRecipe::Create(test_case.recipe, test_case.model, 1));
  auto step = Must(train::TrainStep::Build(resolved, device, /*materialize=*/true));
  Recording result;
  result.captured = Must(sim::CaptureStep(resolved, 0)).trace;
  FillDeviceInputs(step->inputs(), test_case, resolved, 0, 0);
  Must(step->Run());  // whatever is made once is there now
  CountingRunner runner(count);
  graph::Recorder recorder(&runner);
  recorder.SetRecording(false);
  if (device.is_cuda()) ResetPeak();
  result.recorded = Must(sim::RecordStep(recorder, *step));
  if (device.is_cuda()) result.peak = BytesNow().requested_peak;
  result.counted = runner.counts();
  return result;
}

std::vector<Case> Cases() {
  std::vector<Case> cases;
  for (const bool llama : {true, false}) {
    for (const v1::DType param : {v1::FLOAT32, v1::BFLOAT16}) {
      for (const bool checkpointed : {false, true}) {
        cases.push_back(CaseOfOne(std::string(llama ? "llama" : "gpt2_dropout") + (param == v1::FLOAT32 ? "_fp32" : "_bf16") +
                                      (checkpointed ? "_ac" : ""),
                                  llama ? integration::TinyLlama() : integration::TinyGpt2(), param, checkpointed));
      }
    }
  }
  for (Case& test_case : OneCardCases()) cases.push_back(std::move(test_case));
  return cases;
}

class Capture : public OneRankTest, public ::testing::WithParamInterface<Case> {
 protected:
  Recording Record() {
    return gpu::Record(GetParam(), c10::Device(c10::kCUDA, 0), [] { return BytesNow().requested; });
  }
};

TEST_P(Capture, TheDevicesStepIsTheCapturedOne) {
  const Recording step = Record();
  const auto differences = DeviceDifferences(step.recorded, step.captured, v1::CUDA);
  std::printf("%s: %zu differences between the device and the capture\n", GetParam().name.c_str(), differences.size());
  Print(differences);
  EXPECT_THAT(differences, IsEmpty());
  EXPECT_THAT(step.recorded.warnings, IsEmpty()) << "a host value is a wait for the device";
}

// What lives beside the step is cuBLAS's: a workspace for each thread that multiplies, 32 MiB on a GPU of compute capability 9.0
// (PyTorch 2.11, CUDABlas: default workspace), made once.
TEST_P(Capture, TheDeviceHoldsWhatTheMemorySimulatorSays) {
  const Recording step = Record();
  const LiveBytes live = CompareLiveBytes(step.counted, step.captured, v1::CUDA);
  const auto profile = sim::SimulateMemory(step.captured, {}).value();
  const int64_t peak = step.peak - live.resident;
  std::printf("%s: %ld bytes beside the step; peak %ld on the device, %ld predicted (%+.2f %%) at %s; %zu differences\n",
              GetParam().name.c_str(), static_cast<long>(live.resident), static_cast<long>(peak),
              static_cast<long>(profile.peak_requested_bytes), 100.0 * (profile.peak_requested_bytes - peak) / peak,
              profile.peak_at.c_str(), live.differences.size());
  Print(live.differences);
  EXPECT_THAT(live.differences, IsEmpty());
}

INSTANTIATE_TEST_SUITE_P(Recipes, Capture, ::testing::ValuesIn(Cases()), [](const auto& info) { return info.param.name; });

// A capture takes an operator that has a CPU kernel whole. Where CUDA had none, its step would show the operator's parts. CUDA's
// libraries are enough to ask; which recipe is first to use each operator does not matter.
TEST(CaptureOperators, HaveKernelsOfCudaWhereTheyHaveKernelsOfTheCpu) {
  if (!CudaKernelsAreKnown()) GTEST_SKIP() << "CUDA's libraries cannot be loaded here";
  auto& dispatcher = c10::Dispatcher::singleton();
  std::set<std::string> names;
  for (const Case& test_case : integration::ParityCases()) {
    const auto resolved = Must(parallel::ResolvedRecipe::Create(test_case.recipe, test_case.model, test_case.world_size));
    const graph::Trace trace = Must(sim::CaptureStep(resolved, test_case.world_size - 1)).trace;
    for (const graph::Operator& op : trace.operators) names.insert(op.name);
  }
  EXPECT_GT(names.size(), 40u);
  for (const std::string& full : names) {
    const size_t dot = full.find('.');
    const auto op =
        dispatcher.findSchemaOrThrow(full.substr(0, dot).c_str(), dot == std::string::npos ? "" : full.c_str() + dot + 1);
    const auto has = [&](c10::DispatchKey key) { return op.hasKernelForDispatchKey(key); };
    const bool composite = has(c10::DispatchKey::CompositeImplicitAutograd);
    EXPECT_EQ(composite && !has(c10::DispatchKey::CUDA), composite && !has(c10::DispatchKey::CPU))
        << full << " decomposes on CUDA";
    EXPECT_TRUE(has(c10::DispatchKey::CUDA) || has(c10::DispatchKey::CompositeExplicitAutograd) ||
                has(c10::DispatchKey::CompositeExplicitAutogradNonFunctional))
        << full << " has no kernel on CUDA";
  }
}

// The comparisons themselves, on the CPU: they find nothing where there is nothing, and what is put in.
class CaptureComparison : public ::testing::Test {
 protected:
  CaptureComparison() {
    (void)CudaKernelsAreKnown();  // autograd asks for GPUs once, at the first backward
    const std::vector<mesh::Group> groups = mesh::Mesh().Groups(0);
    runtime_ = Must(comm::Runtime::Create(0, groups, comm::MakeThreadStreams(), comm::NoCommunicator));
    comm::RuntimeScope scope(runtime_.get());
    comm::InstallCpuMemoryCounter();
    step_ =
        gpu::Record(CaseOfOne("gpt2", integration::TinyGpt2(), v1::BFLOAT16, true), c10::Device(c10::kCPU), comm::CpuLiveBytes);
  }
  std::vector<std::string> Differences(size_t limit = 60) {
    return DeviceDifferences(step_.recorded, step_.captured, v1::CPU, limit);
  }
  // The instruction of the nth operator of that name in the recording.
  graph::Instruction& Find(const std::string& name) {
    for (graph::Instruction& instruction : step_.recorded.instructions) {
      if (instruction.kind == graph::Instruction::Kind::kOperator && step_.recorded.OperatorName(instruction) == name)
        return instruction;
    }
    throw std::runtime_error("no " + name);
  }

  std::unique_ptr<comm::Runtime> runtime_;
  Recording step_;
};

TEST_F(CaptureComparison, TheCpusStepIsTheCapturedOne) {
  EXPECT_THAT(Differences(), IsEmpty());
  EXPECT_THAT(CompareLiveBytes(step_.counted, step_.captured, v1::CPU).differences, IsEmpty());
}

TEST_F(CaptureComparison, WhatCudaIsKnownToDoOtherwiseIsExpectedThere) {
  const auto differences = DeviceDifferences(step_.recorded, step_.captured, v1::CUDA);
  ASSERT_FALSE(differences.empty()) << "layer norm of bf16 keeps fp32 statistics on CUDA, which this recording has not";
  for (const std::string& line : differences) EXPECT_NE(line.find("native_layer_norm"), std::string::npos) << line;
  EXPECT_FALSE(CompareLiveBytes(step_.counted, step_.captured, v1::CUDA).differences.empty());
}

TEST_F(CaptureComparison, AnOperatorOfOneSideIsSaid) {
  auto& instructions = step_.recorded.instructions;
  for (size_t i = 0; i < instructions.size(); ++i) {
    if (instructions[i].kind != graph::Instruction::Kind::kOperator ||
        step_.recorded.OperatorName(instructions[i]) != "aten::gelu")
      continue;
    instructions.erase(instructions.begin() + i);
    break;
  }
  const auto differences = Differences();
  ASSERT_EQ(differences.size(), 1u);
  EXPECT_THAT(differences[0], ::testing::HasSubstr("1 x only in the capture: aten::gelu, forward"));
}

TEST_F(CaptureComparison, AnotherStrideIsSaidOfEachThatSeesIt) {
  const graph::Instruction& gelu = Find("aten::gelu");
  const graph::Value& value = step_.recorded.values[step_.recorded.results[gelu.first_result].index];
  std::swap(step_.recorded.geometries[value.geometry].strides[0], step_.recorded.geometries[value.geometry].strides[1]);
  const auto differences = Differences();
  ASSERT_FALSE(differences.empty());
  EXPECT_THAT(differences, ::testing::Contains(::testing::HasSubstr("aten::gelu, forward in transformer.h.*.mlp, result 0")));
}

TEST_F(CaptureComparison, AnotherSizeModuleAndLifetimeAreSaid) {
  const graph::Instruction& gelu = Find("aten::gelu");
  step_.recorded.storages[step_.recorded.values[step_.recorded.results[gelu.first_result].index].storage].bytes += 64;
  Find("aten::addmm").module = 0;
  auto& instructions = step_.recorded.instructions;
  size_t first = 0;
  while (instructions[first].kind != graph::Instruction::Kind::kFree) ++first;
  instructions.erase(instructions.begin() + first);
  const auto differences = Differences();
  EXPECT_THAT(differences, ::testing::Contains(::testing::HasSubstr("bytes on the device | ")));
  EXPECT_THAT(differences, ::testing::Contains(::testing::HasSubstr("the device says it is in the step")));
  EXPECT_THAT(differences, ::testing::Contains(::testing::HasSubstr("is freed never on the device")));
}

TEST_F(CaptureComparison, AConstantThatDiffersIsSaid) {
  step_.recorded.constants.push_back(int64_t{12345});
  for (uint32_t i = 0; i < Find("aten::embedding").argument_count; ++i) {
    auto& argument = step_.recorded.arguments[Find("aten::embedding").first_argument + i];
    if (argument.kind == graph::Argument::Kind::kConstant) argument.index = step_.recorded.constants.size() - 1;
  }
  EXPECT_THAT(Differences(), ::testing::Contains(::testing::HasSubstr("another constant")));
}

TEST_F(CaptureComparison, EachDistinctDifferenceIsSaidOnceAndManyAreCounted) {
  for (auto& geometry : step_.recorded.geometries) geometry.offset += 1;
  const auto all = Differences(100000), some = Differences(5);
  EXPECT_EQ(std::set<std::string>(all.begin(), all.end()).size(), all.size());
  ASSERT_EQ(some.size(), 6u);
  EXPECT_EQ(some.back(), std::to_string(all.size() - 5) + " more distinct differences");
}

TEST_F(CaptureComparison, LiveBytesTellWhereTheDistanceChanges) {
  std::vector<int64_t> counted = step_.counted;
  for (int64_t& bytes : counted) bytes += 1000;
  for (size_t i = 100; i < 120; ++i) counted[i] += 48;
  const LiveBytes live = CompareLiveBytes(counted, step_.captured, v1::CPU);
  EXPECT_EQ(live.resident, CompareLiveBytes(step_.counted, step_.captured, v1::CPU).resident + 1000);
  ASSERT_EQ(live.differences.size(), 2u);
  EXPECT_THAT(live.differences[0], ::testing::HasSubstr("48 bytes more than the memory simulator"));
  EXPECT_THAT(live.differences[1], ::testing::HasSubstr("48 bytes less"));
}

}  // namespace
}  // namespace legoai::gpu
