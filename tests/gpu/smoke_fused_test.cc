// Fused kernels on a GPU against the operators one by one on the same GPU: every kind of kernel, on shapes that wide reads divide
// and that they do not; whole training steps; and what a chain takes with and without, which is printed.
#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <gmock/gmock.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/recipe/resolved_recipe.h"
#include "core/trace/device_results.h"
#include "core/trace/passes/pass_check.h"
#include "core/trace/passes/passes.h"
#include "tests/gpu/gpu_test.h"
#include "worker/graph/executor.h"
#include "worker/graph/fused_operator.h"
#include "worker/graph/testing/chains.h"
#include "worker/graph/testing/random_program.h"
#include "worker/train/step_program.h"

namespace legoai::gpu {
namespace {

using graph::Executor;
using graph::FuseElementwise;
using graph::Trace;
using graph::testing_programs::FusedCount;
using graph::testing_programs::kChains;
using graph::testing_programs::Largest;
using graph::testing_programs::RandomProgram;
using graph::testing_programs::RunOn;
using graph::testing_programs::SwiGlu;
using integration::Must;
using ::testing::IsEmpty;

const c10::Device kGpu(c10::kCUDA, 0);

double Apart(const at::Tensor& a, const at::Tensor& b) { return graph::testing_programs::Difference(a, b); }

class SmokeFused : public GpuTest {
 protected:
  void SetUp() override {
    setenv("LEGOAI_KERNEL_CACHE", (::testing::TempDir() + "/gpu-kernels").c_str(), 1);
    GpuTest::SetUp();
  }
};

Trace OnGpu(const Trace& trace) { return graph::ProgramFor(v1::CUDA, trace); }

// As worker/graph/fused_operator_test.cc has it for CPUs: by the largest number of the program, for what is subtracted may be
// larger than what is left. In bfloat16 members round more often than the kernel does.
void CompareRandom(unsigned seed, v1::DType dtype) {
  const Trace trace = OnGpu(RandomProgram(seed, dtype).trace), fused = Must(FuseElementwise(trace));
  SCOPED_TRACE(absl::StrCat("seed ", seed, " ", v1::DType_Name(dtype), "\n", fused.Dump(true)));
  ASSERT_THAT(graph::PassFindings(trace, fused), IsEmpty());
  const auto members = RunOn(trace, seed, kGpu), together = RunOn(fused, seed, kGpu);
  const auto exact = RunOn(OnGpu(RandomProgram(seed, v1::FLOAT32).trace), seed, kGpu);
  double scale = 1;
  for (const auto& [_, tensor] : exact) scale = std::max(scale, Largest(tensor));
  for (const auto& [name, tensor] : exact) {
    const double allowed = dtype == v1::FLOAT32 ? 1e-4 * scale
                                                : 4 * Apart(tensor, members.at(name)) + std::max(1.0, Largest(tensor)) / 128;
    EXPECT_LE(Apart(dtype == v1::FLOAT32 ? members.at(name) : tensor, together.at(name)), allowed) << name;
  }
}

TEST_F(SmokeFused, RandomProgramsComputeWhatTheirMembersDo) {
  const unsigned first = std::random_device()();
  std::printf("seed %u\n", first);
  for (unsigned seed = first; seed < first + 6; ++seed) {
    for (const v1::DType dtype : {v1::FLOAT32, v1::BFLOAT16}) CompareRandom(seed, dtype);
  }
}

// Sums over rows of a warp, of a block, and of several turns of each thread.
TEST_F(SmokeFused, GradientsOfNormsBetweenSumsAreTheMembers) {
  for (const bool is_layer_norm : {false, true}) {
    for (const v1::DType dtype : {v1::FLOAT32, v1::BFLOAT16}) {
      for (const auto& shape : std::vector<std::vector<int64_t>>{{3, 37, 7}, {129, 96}, {5, 1001}, {2, 33, 4096}, {4, 16384}}) {
        SCOPED_TRACE(absl::StrCat(is_layer_norm ? "layer norm " : "RMS norm ", v1::DType_Name(dtype), " rows of ", shape.back()));
        const Trace trace = graph::testing_programs::Residual(is_layer_norm, dtype, shape, v1::FLOAT32);
        const Trace fused = Must(FuseElementwise(trace));
        ASSERT_EQ(FusedCount(fused), 1);
        const auto members = RunOn(trace, 7, kGpu), together = RunOn(fused, 7, kGpu);
        for (const auto& [name, tensor] : members) {
          const double allowed = (dtype == v1::FLOAT32 ? 2e-5 : 2.0 / 128) * std::max(1.0, Largest(tensor));
          EXPECT_LE(Apart(tensor, together.at(name)), allowed) << name;
        }
      }
    }
  }
}

TEST_F(SmokeFused, ChainsComputeWhatTheirMembersDo) {
  for (const auto& [name, chain, tensors] : kChains) {
    for (const v1::DType dtype : {v1::FLOAT32, v1::BFLOAT16}) {
      for (const int64_t width : {128, 384, 4096}) {
        SCOPED_TRACE(absl::StrCat(name, " ", v1::DType_Name(dtype), " rows of ", width));
        const Trace trace = chain(37, width, dtype), fused = Must(FuseElementwise(trace));
        ASSERT_EQ(FusedCount(fused), 1);
        const auto members = RunOn(trace, 3, kGpu), together = RunOn(fused, 3, kGpu);
        for (const auto& [of, tensor] : members) {
          const double allowed = (dtype == v1::FLOAT32 ? 1e-5 : 2.0 / 128) * std::max(1.0, Largest(tensor));
          EXPECT_LE(Apart(tensor, together.at(of)), allowed) << of;
        }
        const auto again = RunOn(fused, 3, kGpu);
        for (const auto& [of, tensor] : together) EXPECT_TRUE(tensor.equal(again.at(of))) << of << ": the same bits in every run";
      }
    }
  }
}

// Elements that do not lie as wide reads want them take the other function, with the same bits.
TEST_F(SmokeFused, AddressesOfAnyKindAreTaken) {
  const Trace fused = Must(FuseElementwise(SwiGlu(64, 256, v1::BFLOAT16)));
  graph::KernelCounts counts;
  std::vector<std::string> notes;
  Must(graph::PrepareKernels(fused, kGpu, &counts, &notes));
  std::string text;
  for (const graph::Instruction& instruction : fused.instructions) {
    if (const std::string* found = graph::FusedKernelText(fused, instruction)) text = *found;
  }
  const auto op = c10::Dispatcher::singleton()
                      .findSchemaOrThrow("lego::fused", "")
                      .typed<std::vector<at::Tensor>(at::TensorList, at::TensorList, c10::string_view)>();
  const at::Tensor gate = at::randn({64 * 256 + 1}, at::TensorOptions(kGpu).dtype(at::kBFloat16)), up = at::randn_like(gate);
  const auto at_offset = [](const at::Tensor& x, int64_t offset) { return x.narrow(0, offset, 64 * 256).view({64, 256}); };
  const at::Tensor odd = op.call({at_offset(gate, 1), at_offset(up, 1)}, {}, text).at(0);
  const at::Tensor even = op.call({at_offset(gate, 1).clone(), at_offset(up, 1).clone()}, {}, text).at(0);
  EXPECT_TRUE(odd.equal(even));
  EXPECT_GT(Largest(odd), 0);
  EXPECT_THROW(op.call({at_offset(gate, 0).cpu(), at_offset(up, 1)}, {}, text), c10::Error);
}

// Microseconds of one run, on the device.
double Microseconds(const comm::CudaPlugin& plugin, const Trace& trace) {
  constexpr int kRuns = 50;
  auto executor = Must(Executor::Create(trace, kGpu));
  for (const auto& [name, value] : trace.inputs) {
    const graph::Geometry& geometry = trace.geometries[trace.values[value].geometry];
    const auto options = at::TensorOptions(kGpu).dtype(geometry.dtype == v1::BFLOAT16 ? at::kBFloat16 : at::kFloat);
    Must(executor->Bind(name, at::randn(geometry.sizes, options)));
  }
  const auto timer = plugin.make_timer();
  for (int i = 0; i < 5; ++i) Must(executor->Run());
  Synchronize();
  Must(timer->Start());
  for (int i = 0; i < kRuns; ++i) Must(executor->Run());
  return 1e6 * Must(timer->Stop()) / kRuns;
}

TEST_F(SmokeFused, ChainsAreTimed) {
  for (const auto& [name, chain, tensors] : kChains) {
    const Trace trace = chain(8192, 4096, v1::BFLOAT16), fused = Must(FuseElementwise(trace));
    ASSERT_EQ(FusedCount(fused), 1);
    const double alone = Microseconds(*plugin_, trace), together = Microseconds(*plugin_, fused);
    EXPECT_GT(together, 0);
    const double bytes = 8192.0 * 4096 * 2 * tensors;
    std::printf("%s of 8192 x 4096 bfloat16: %.1f us one by one, %.1f us fused (%.2f of it; %.0f GB/s)\n", name, alone, together,
                together / alone, bytes / together / 1e3);
  }
}

// Three steps of a recipe: eager, as a program, and as a program with fused kernels.
struct Steps {
  std::vector<double> losses, norms;
};

Steps TrainOn(const integration::Case& test_case, bool compiled, bool fused) {
  integration::Case of = test_case;
  of.recipe.mutable_compile()->set_enable(compiled);
  of.recipe.mutable_compile()->set_fuse(fused);
  const auto resolved = Must(parallel::ResolvedRecipe::Create(of.recipe, of.model, 1));
  auto step = Must(train::TrainStep::Build(resolved, kGpu, /*materialize=*/true));
  std::string warning;
  const train::StepPrograms programs =
      Must(train::AdoptPrograms(train::CapturePrograms(resolved, kGpu), of.recipe.compile(), *step, kGpu, &warning));
  EXPECT_EQ(warning, "");
  if (fused) {
    EXPECT_GT(FusedCount(programs.step->trace()), 0);
    for (const std::string& note : programs.step->notes()) std::printf("%s\n", note.c_str());
  }
  Steps steps;
  for (int64_t i = 0; i < 3; ++i) {
    FillDeviceInputs(step->inputs(), of, resolved, 0, i);
    const auto result = compiled ? Must(programs.step->Run()) : Must(step->Run());
    steps.losses.push_back(result.loss.item<double>());
    steps.norms.push_back(result.grad_norm.item<double>());
  }
  return steps;
}

double Farthest(const std::vector<double>& a, const std::vector<double>& b) {
  double farthest = 0;
  for (size_t i = 0; i < a.size(); ++i) farthest = std::max(farthest, std::abs(a[i] - b[i]) / std::abs(a[i]));
  return farthest;
}

class FusedSteps : public SmokeFused, public ::testing::WithParamInterface<std::tuple<bool, v1::DType>> {};

// What the tolerances mean is in tests/integration/fuse_test.cc, whose bounds of float32 are ten times narrower: here lie steps
// of an optimizer between that divides by small gradients, and kernels of the device may add up in any order.
TEST_P(FusedSteps, TrainAsTheEagerStepsDo) {
  const auto& [llama, param] = GetParam();
  const integration::Case test_case = CaseOfOne(
      llama ? "llama" : "gpt2", llama ? integration::TinyLlama() : integration::TinyGpt2(), param, /*checkpointed=*/false);
  auto runtime = RuntimeOfOne(*plugin_);
  comm::RuntimeScope scope(runtime.get());
  const Steps eager = TrainOn(test_case, false, false), program = TrainOn(test_case, true, false);
  const Steps fused = TrainOn(test_case, true, true);
  const double loss = param == v1::FLOAT32 ? 1e-5 : 5e-3, norm = param == v1::FLOAT32 ? 1e-4 : 3e-2;
  std::printf("%s %s: the program's losses differ by %.2g, norms by %.2g; fused %.2g and %.2g; %.2g and %.2g allowed\n",
              test_case.name.c_str(), v1::DType_Name(param).c_str(), Farthest(eager.losses, program.losses),
              Farthest(eager.norms, program.norms), Farthest(eager.losses, fused.losses), Farthest(eager.norms, fused.norms),
              loss, norm);
  EXPECT_LE(Farthest(eager.losses, program.losses), param == v1::FLOAT32 ? 1e-6 : 1e-4);
  EXPECT_LE(Farthest(eager.norms, program.norms), param == v1::FLOAT32 ? 1e-5 : 1e-3);
  EXPECT_LE(Farthest(eager.losses, fused.losses), loss);
  EXPECT_LE(Farthest(eager.norms, fused.norms), norm);
}

INSTANTIATE_TEST_SUITE_P(Smoke, FusedSteps,
                         ::testing::Combine(::testing::Bool(), ::testing::Values(v1::FLOAT32, v1::BFLOAT16)),
                         [](const auto& info) {
                           return std::string(std::get<0>(info.param) ? "llama" : "gpt2") +
                                  (std::get<1>(info.param) == v1::FLOAT32 ? "_fp32" : "_bf16");
                         });

}  // namespace
}  // namespace legoai::gpu
