// compile.fuse on real steps: three steps of recipes of cases.h train as the eager step does, but for the roundings that fused
// operators leave out. What the tolerances mean: losses and gradient norms are relative; of everything else that a step changes,
// the difference after the first step is relative to the largest change of that tensor, or 1e-4 of the largest of all, under SGD,
// so that it is the gradients'. And each kernel takes no memory but what the simulator predicts: the executed step's peak is that
// of the rewritten Trace, which is at most that of the Trace before the pass.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/trace/fused_kernel.h"
#include "core/trace/passes/pipeline.h"
#include "simulator/capture/capture.h"
#include "simulator/memory/memory_simulator.h"
#include "tests/integration/cases.h"
#include "tests/integration/fuse_cases.h"
#include "tests/integration/train_in_processes.h"
#include "worker/comm/cpu_tensors.h"
#include "worker/train/step_program.h"

namespace legoai::integration {
namespace {

constexpr int64_t kSteps = 3;
constexpr int64_t kKeptBytes = 2 * sizeof(float);  // loss and gradient norm stay until the next run begins

struct Tolerance {
  double loss = 0, norm = 0, change = 0;
};
// Of a type's unit roundoff (2^-24 and 2^-8) about 20, 100 and 1000 for float32; for bfloat16 1/8 of one, 2 and 16, since a loss
// is a mean and operators outside of groups round as before.
constexpr Tolerance kFloat32{1e-6, 5e-6, 5e-5}, kBfloat16{5e-4, 1e-2, 6e-2};

constexpr double kLeastChange = 1e-4;  // of the largest of all tensors' changes

double Relative(const at::Tensor& a, const at::Tensor& b) {
  return std::abs(a.item<double>() - b.item<double>()) / std::abs(a.item<double>());
}
double Largest(const at::Tensor& tensor) { return tensor.numel() == 0 ? 0 : tensor.abs().max().item<double>(); }

std::map<std::string, at::Tensor> Copies(train::TrainStep& step) {
  std::map<std::string, at::Tensor> copies;
  for (const auto& of : step.State()) {
    if (of.tensor.storage().nbytes() > 0) copies.emplace(of.name, of.tensor.to(at::kDouble));  // a copy
  }
  return copies;
}

struct Seen {
  double loss = 0, norm = 0, change = 0;
};

// After the first step.
void CompareChanges(const std::map<std::string, at::Tensor>& start, train::TrainStep& eager, train::TrainStep& fused,
                    double tolerance, Seen* seen) {
  const auto left = Copies(eager), right = Copies(fused);
  std::map<std::string, double> changes;  // of what differs; a mask's infinities do not
  double largest = 0;
  int64_t compared = 0;
  for (const auto& [name, tensor] : left) {
    if (start.count(name) == 0 || right.count(name) == 0) continue;
    ++compared;
    if (tensor.equal(right.at(name))) continue;
    changes[name] = Largest(tensor - start.at(name));
    largest = std::max(largest, changes[name]);
  }
  for (const auto& [name, own] : changes) {
    // The gradient of a bias of keys is 0 but for roundings, which are as large as the others' gradients make them.
    const double change = std::max(own, kLeastChange * largest), difference = Largest(left.at(name) - right.at(name));
    seen->change = std::max(seen->change, difference / change);
    EXPECT_LE(difference, tolerance * change) << name;
  }
  EXPECT_GT(compared, 0);
}

int64_t FusedCount(const graph::Trace& trace) {
  return std::count_if(trace.instructions.begin(), trace.instructions.end(),
                       [&](const graph::Instruction& i) { return graph::FusedKernelText(trace, i) != nullptr; });
}

int64_t PredictedPeakBytes(const graph::Trace& trace) {
  sim::MemoryOptions options;
  options.kind = v1::CPU;
  options.onednn_bfloat16 = comm::OneDnnComputesBfloat16();
  const sim::MemoryProfile profile = Must(sim::SimulateMemory(trace, options));
  return profile.peak_requested_bytes - profile.start_bytes;
}

// What the pass makes of a rank's step: its peak is not above that of the step without, and norms and rotations are in it.
void CheckPass(const parallel::ResolvedRecipe& resolved, int64_t rank) {
  int64_t before = 0, after = 0;
  graph::PassOptions options{.dump_directory = "", .check = true};
  options.observer = [&](const std::string&, const graph::Trace& trace) {
    before = after, after = PredictedPeakBytes(trace);
    return absl::OkStatus();
  };
  const graph::Trace fused = Must(graph::RunPasses(Must(sim::CaptureStep(resolved, rank)).trace, resolved, options));
  EXPECT_LE(after, before) << "the peak of the fused step";
  std::map<std::string, int64_t> alone, inside;
  for (const graph::Instruction& instruction : fused.instructions) {
    const std::string* const text = graph::FusedKernelText(fused, instruction);
    if (text == nullptr) {
      if (instruction.kind == graph::Instruction::Kind::kOperator) ++alone[fused.OperatorName(instruction)];
      continue;
    }
    for (const graph::FusedStatement& statement : Must(graph::ParseFusedKernel(*text)).statements) ++inside[statement.op];
  }
  EXPECT_EQ(alone["aten::roll"], 0) << "rotations, forward and backward";
  EXPECT_GT(inside["lego::rms_norm"] + inside["aten::native_layer_norm"], 0);
  std::string counts;
  // Gradients of norms, where sums are beside them.
  if (inside["lego::rms_norm"] > 0) {
    EXPECT_GT(inside["lego::rms_norm_backward"], 0);
  }
  EXPECT_EQ(inside["lego::rms_norm_backward"], alone["lego::rms_norm_backward.weight"]);
  for (const char* const op : {"lego::rms_norm", "lego::rms_norm_backward", "aten::native_layer_norm",
                               "aten::native_layer_norm_backward", "aten::roll", "aten::add.Tensor", "aten::add_.Tensor"}) {
    absl::StrAppend(&counts, ", ", op, " ", inside[op], " of ", inside[op] + alone[op]);
  }
  std::printf("rank %ld: peak %ld of %ld bytes%s in fused operators\n", static_cast<long>(rank), static_cast<long>(after),
              static_cast<long>(before), counts.c_str());
}

template <class Run>
int64_t PeakBytes(Run run, train::TrainStep::Result* result) {
  comm::ResetCpuPeakBytes();
  const int64_t before = comm::CpuLiveBytes();
  *result = Must(run());
  return comm::CpuPeakBytes() - before;
}

Seen CheckRank(const FuseCase& fuse_case, int64_t rank, const parallel::ResolvedRecipe& eager_recipe) {
  comm::InstallCpuMemoryCounter();
  const Case& test_case = fuse_case.eager;
  const auto resolved = Must(parallel::ResolvedRecipe::Create(Fused(fuse_case), test_case.model, test_case.world_size));
  auto eager = Must(train::TrainStep::Build(eager_recipe, at::kCPU, /*materialize=*/true));
  auto fused = Must(train::TrainStep::Build(resolved, at::kCPU, /*materialize=*/true));
  CheckPass(resolved, rank);
  std::string warning;
  const train::StepPrograms programs = Must(train::AdoptPrograms(
      train::CapturePrograms(resolved, at::kCPU), resolved.recipe().compile(), *fused, at::kCPU, &warning));
  EXPECT_GT(FusedCount(programs.step->trace()), 0);
  const Tolerance& tolerance = IsRounded(fuse_case.eager) ? kBfloat16 : kFloat32;
  const auto start = Copies(*eager);
  Seen seen;
  for (int64_t step = 0; step < kSteps; ++step) {
    FillInputs(eager->inputs(), fuse_case.eager, eager_recipe, rank, step);
    FillInputs(fused->inputs(), fuse_case.eager, resolved, rank, step);
    train::TrainStep::Result own, program;
    const int64_t own_bytes = PeakBytes([&] { return eager->Run(); }, &own);
    const int64_t program_bytes = PeakBytes([&] { return programs.step->Run(); }, &program);
    seen.loss = std::max(seen.loss, Relative(own.loss, program.loss));
    seen.norm = std::max(seen.norm, Relative(own.grad_norm, program.grad_norm));
    EXPECT_LE(Relative(own.loss, program.loss), tolerance.loss) << "loss of step " << step;
    EXPECT_LE(Relative(own.grad_norm, program.grad_norm), tolerance.norm) << "gradient norm of step " << step;
    if (step == 0) CompareChanges(start, *eager, *fused, tolerance.change, &seen);
    if (step == 0) continue;  // a first step makes what stays
    EXPECT_EQ(program_bytes + kKeptBytes, PredictedPeakBytes(programs.step->trace()));
    if (fuse_case.buckets.empty() && !fuse_case.async) {
      EXPECT_LE(program_bytes + kKeptBytes, own_bytes);
    }
  }
  return seen;
}

class FuseTest : public testing::TestWithParam<FuseCase> {
 protected:
  static void SetUpTestSuite() { setenv("LEGOAI_KERNEL_CACHE", (testing::TempDir() + "/kernels").c_str(), 1); }
};

TEST_P(FuseTest, TrainsAsEagerDoesButForRoundings) {
  const auto seen = RunCase(GetParam().eager, [&](int64_t rank, comm::Runtime&, const parallel::ResolvedRecipe& resolved) {
    const Seen of = CheckRank(GetParam(), rank, resolved);
    return absl::StrCat("loss ", of.loss, ", norm ", of.norm, ", gradients ", of.change);
  });
  std::printf("%s, largest relative difference by rank: %s\n", GetParam().eager.name.c_str(), absl::StrJoin(seen, "; ").c_str());
}

INSTANTIATE_TEST_SUITE_P(Recipes, FuseTest, testing::ValuesIn(FuseCases()),
                         [](const auto& info) { return info.param.eager.name; });

}  // namespace
}  // namespace legoai::integration
