// Graph mode on a GPU: the captured step, run there, gives the bits of the eager one there, takes no more memory, and trains as
// the CPU does. Beside it what a step of each way takes.
#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/model/catalog.h"
#include "core/recipe/resolved_recipe.h"
#include "tests/gpu/gpu_test.h"
#include "tests/gpu/one_card_cases.h"
#include "worker/graph/fake/testing/capture_recorder.h"
#include "worker/train/step_program.h"

namespace legoai::gpu {
namespace {

using integration::Case;
using integration::Must;
using sim::testing::SameBits;

constexpr int64_t kSteps = 3;

// The bounds of tests/integration/parity_test.cc for losses that are rounded to 16 bits, and of tools/gpu/check_parity.py.
double Tolerance(const Case& test_case) { return integration::IsRounded(test_case) ? 2e-2 : 1e-4; }

Case AsProgram(Case test_case) {
  test_case.recipe.mutable_compile()->set_enable(true);
  test_case.recipe.mutable_validation()->set_enable(true);
  test_case.recipe.mutable_training()->set_validation_fraction(0.1);
  return test_case;
}

// Losses, gradient norms and, last, the state after the steps.
struct Trained {
  std::vector<at::Tensor> results;  // on the CPU
  std::vector<std::string> names;
  int64_t peak = 0, before = 0;  // requested bytes of the last step, and those that were there before it
};

using Step = std::function<absl::StatusOr<train::TrainStep::Result>()>;

void Note(Trained* trained, const std::string& name, const at::Tensor& tensor) {
  trained->names.push_back(name);
  trained->results.push_back(tensor.detach().cpu().clone());
}

Trained Train(const Case& test_case, const parallel::ResolvedRecipe& resolved, train::TrainStep& step, const Step& run,
              const std::function<at::Tensor()>& evaluate) {
  Trained trained;
  const bool on_card = step.inputs().tokens.is_cuda();
  for (int64_t i = 0; i < kSteps; ++i) {
    FillDeviceInputs(step.inputs(), test_case, resolved, 0, i);
    if (on_card) Synchronize(), ResetPeak(), trained.before = BytesNow().requested;
    const auto result = Must(run());
    if (on_card) Synchronize(), trained.peak = BytesNow().requested_peak;
    Note(&trained, "loss of step " + std::to_string(i), result.loss);
    Note(&trained, "gradient norm of step " + std::to_string(i), result.grad_norm);
  }
  Note(&trained, "held-out loss", evaluate());
  for (const auto& state : step.State()) {
    const bool is_there = state.tensor.storage().nbytes() > 0;  // gathered parameters are gone between steps
    if (is_there) Note(&trained, state.name, state.tensor);
  }
  return trained;
}

class ProgramDevice : public OneRankTest, public ::testing::WithParamInterface<Case> {
 protected:
  Trained Eager(c10::Device device) {
    auto step = Must(train::TrainStep::Build(resolved_, device, /*materialize=*/true));
    return Train(GetParam(), resolved_, *step, [&] { return step->Run(); }, [&] { return Must(step->Evaluate()); });
  }
  Trained Program() {
    auto step = Must(train::TrainStep::Build(resolved_, device_, /*materialize=*/true));
    std::string warning;
    const auto programs = Must(train::AdoptPrograms(train::CapturePrograms(resolved_, device_), resolved_.recipe().compile(),
                                                    *step, device_, &warning));
    EXPECT_EQ(warning, "");
    return Train(GetParam(), resolved_, *step, [&] { return programs.step->Run(); },
                 [&] { return Must(programs.evaluation->Run()).loss; });
  }

  const c10::Device device_{c10::kCUDA, 0};
  const parallel::ResolvedRecipe resolved_ =
      Must(parallel::ResolvedRecipe::Create(AsProgram(GetParam()).recipe, GetParam().model, 1));
};

// Kernels that add with atomics sum in the order of the day: where two eager trainings differ, so may a program, and as little.
double LargestApart(const Trained& a, const Trained& b) {
  double largest = 0;
  for (size_t i = 0; i < a.results.size(); ++i) {
    if (!SameBits(a.results[i], b.results[i])) largest = std::max(largest, Difference(a.results[i], b.results[i]));
  }
  return largest;
}

TEST_P(ProgramDevice, TrainsAsTheEagerStep) {
  const Trained eager = Eager(device_), again = Eager(device_), program = Program(), cpu = Eager(at::kCPU);
  ASSERT_EQ(program.names, eager.names);
  const double own = LargestApart(again, eager), apart = LargestApart(program, eager);
  for (size_t i = 0; i < eager.results.size(); ++i) {
    if (SameBits(again.results[i], eager.results[i])) {
      EXPECT_TRUE(SameBits(program.results[i], eager.results[i])) << eager.names[i] << ", beside " << own << " of eager";
    } else {
      EXPECT_LE(Difference(program.results[i], eager.results[i]), std::max(10 * own, 1e-6)) << eager.names[i];
    }
  }
  double of_cpu = 0;
  for (int64_t i = 0; i < 2 * kSteps; i += 2) of_cpu = std::max(of_cpu, Difference(eager.results[i], cpu.results[i]));
  EXPECT_LE(of_cpu, Tolerance(GetParam())) << "losses beside the CPU's";
  const int64_t peak = program.peak - program.before, of_eager = eager.peak - eager.before;
  std::printf("%s: eager twice %.1e apart, program %.1e, CPU's losses %.1e; peak above what was there: %ld eager, %ld program\n",
              GetParam().name.c_str(), own, apart, of_cpu, static_cast<long>(of_eager), static_cast<long>(peak));
  EXPECT_LE(peak, of_eager);
}

INSTANTIATE_TEST_SUITE_P(Recipes, ProgramDevice, ::testing::ValuesIn(OneCardCases()),
                         [](const auto& info) { return info.param.name; });

// Small batches, whose operators are short: then a step takes what dispatching takes.
class ProgramTime : public GpuTest, public ::testing::WithParamInterface<const char*> {};

TEST_P(ProgramTime, OfAStepBesideTheEagerOne) {
  const std::unique_ptr<comm::Runtime> runtime = RuntimeOfOne(*plugin_);
  const comm::RuntimeScope scope(runtime.get());
  Case test_case = CaseOfOne(GetParam(), *model::FindModel(GetParam()), v1::BFLOAT16, /*checkpointed=*/false);
  test_case.recipe.mutable_training()->set_seq_len(512);
  test_case.recipe.mutable_compile()->set_enable(true);
  const auto resolved = Must(parallel::ResolvedRecipe::Create(test_case.recipe, test_case.model, 1));
  const c10::Device device(c10::kCUDA, 0);
  auto step = Must(train::TrainStep::Build(resolved, device, /*materialize=*/true));
  std::string warning;
  const auto programs =
      Must(train::AdoptPrograms(train::CapturePrograms(resolved, device), resolved.recipe().compile(), *step, device, &warning));
  FillDeviceInputs(step->inputs(), test_case, resolved, 0, 0);
  std::vector<double> eager, program;  // milliseconds
  const auto time = [&](std::vector<double>* times, const Step& run) {
    Synchronize();
    const auto begin = std::chrono::steady_clock::now();
    const float loss = Must(run()).loss.item<float>();
    times->push_back(1e3 * std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
    EXPECT_GT(loss, 0);
  };
  for (int round = 0; round < 15; ++round) {
    time(&eager, [&] { return step->Run(); });
    time(&program, [&] { return programs.step->Run(); });
  }
  for (auto* times : {&eager, &program}) std::sort(times->begin() + 3, times->end());  // those before warm up
  std::printf("%s, batch %ld x 512, bf16: a step takes %.2f ms eager, %.2f ms as a program (medians of 12, in turns; least %.2f "
              "and %.2f)\n", GetParam(), static_cast<long>(resolved.local_batch()), eager[9], program[9], eager[3], program[3]);
}

INSTANTIATE_TEST_SUITE_P(Models, ProgramTime, ::testing::Values("gpt2", "llama3-1b"), [](const auto& info) {
  return info.index == 0 ? "gpt2" : "llama3_1b";
});

}  // namespace
}  // namespace legoai::gpu
