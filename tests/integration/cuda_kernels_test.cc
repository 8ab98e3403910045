// Every fused kernel that the recipes of fuse_cases.h need, on CPUs and on GPUs: its CUDA, emulated, gives what its C++ does, and
// NVRTC compiles it for an H100.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <set>
#include <string>
#include <utility>

#include "core/trace/fused_kernel.h"
#include "core/trace/passes/pipeline.h"
#include "simulator/capture/capture.h"
#include "tests/integration/fuse_cases.h"
#include "tests/integration/train_in_processes.h"
#include "worker/graph/testing/check_cuda_kernel.h"
#include "worker/graph/testing/nvrtc_library.h"

namespace legoai::integration {
namespace {

void AddKernels(const FuseCase& fuse_case, v1::DeviceKind device, std::set<std::string>* texts) {
  const Case& test_case = fuse_case.eager;
  const auto resolved = Must(parallel::ResolvedRecipe::Create(Fused(fuse_case), test_case.model, test_case.world_size));
  graph::PassOptions options;
  options.device = device;
  options.check = true;
  for (int64_t rank = 0; rank < test_case.world_size; ++rank) {
    auto captured = Must(sim::CaptureStep(resolved, rank)).trace;
    const graph::Trace fused = Must(graph::RunPasses(std::move(captured), resolved, options));
    for (const graph::Instruction& instruction : fused.instructions) {
      if (const std::string* text = graph::FusedKernelText(fused, instruction)) texts->insert(*text);
    }
  }
}

TEST(CudaKernels, OfEveryRecipeComputeWhatTheCpusDo) {
  setenv("LEGOAI_KERNEL_CACHE", (testing::TempDir() + "/kernels").c_str(), 1);
  Must(graph::testing_cuda::UseFetchedNvrtc());
  std::set<std::string> texts;
  for (const FuseCase& fuse_case : FuseCases()) {
    for (const v1::DeviceKind device : {v1::CPU, v1::CUDA}) AddKernels(fuse_case, device, &texts);
  }
  std::printf("%zu kernels\n", texts.size());
  EXPECT_GT(texts.size(), 30u);
  for (const std::string& text : texts) graph::testing_cuda::CheckCudaKernel(text, 1);
}

}  // namespace
}  // namespace legoai::integration
