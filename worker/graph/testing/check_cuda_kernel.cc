#include "worker/graph/testing/check_cuda_kernel.h"

#include <gtest/gtest.h>

#include <vector>

#include "core/trace/fused_kernel.h"
#include "worker/graph/cuda_kernel_cache.h"
#include "worker/graph/cuda_kernel_source.h"
#include "worker/graph/kernel_cache.h"
#include "worker/graph/kernel_source.h"
#include "worker/graph/testing/emulated_cuda.h"

namespace legoai::graph::testing_cuda {

void CheckCudaKernel(const std::string& text, unsigned seed) {
  SCOPED_TRACE(text);
  const FusedKernel kernel = ParseFusedKernel(text).value();
  const auto cpu = SourceOf(kernel);
  const auto cuda = CudaSourceOf(kernel);
  ASSERT_TRUE(cpu.ok() && cuda.ok()) << cpu.status() << cuda.status();
  KernelCounts counts;
  std::vector<std::string> notes;
  const auto run = LoadKernel(*cpu, &counts, &notes);
  ASSERT_TRUE(run.ok()) << run.status();
  const KernelTensors expected(kernel, seed);
  (*run)(expected.pointers().data(), 0, RangeEnd(kernel));
  for (const CudaFunction& function : cuda->functions) {
    const KernelTensors up(kernel, seed), down(kernel, seed);
    for (const bool descending : {false, true}) {
      const absl::Status ran = RunEmulated(*cuda, function, (descending ? down : up).pointers(), descending);
      ASSERT_TRUE(ran.ok()) << ran << "\n" << cuda->text;
    }
    EXPECT_LE(up.DistanceFrom(expected), 1) << function.name << "\n" << cuda->text;
    EXPECT_TRUE(up == down) << function.name << ": hangs on the order of threads\n" << cuda->text;
  }
  const auto cubin = LoadCudaKernel(cuda->text, "sm_90", &counts, &notes);
  ASSERT_TRUE(cubin.ok()) << cubin.status() << "\n" << cuda->text;
  EXPECT_EQ(cubin->substr(1, 3), "ELF");
}

}  // namespace legoai::graph::testing_cuda
