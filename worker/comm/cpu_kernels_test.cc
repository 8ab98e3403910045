#include "worker/comm/cpu_kernels.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <string>

namespace legoai::comm {
namespace {

constexpr char kVariable[] = "ONEDNN_MAX_CPU_ISA";

TEST(CpuKernels, AreThoseOfAvx512UnlessTheUserSaysOtherwise) {
  unsetenv(kVariable);
  UseKnownCpuKernels();
  EXPECT_STREQ(getenv(kVariable), "AVX512_CORE_BF16");
  setenv(kVariable, "ALL", 1);
  UseKnownCpuKernels();
  EXPECT_STREQ(getenv(kVariable), "ALL");
}

TEST(CpuKernels, Bfloat16IsKnownWhereTheKernelListsItsInstructions) {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("flags", 0) != 0) continue;
    EXPECT_EQ(CpuKernelsAreKnownForBfloat16(), (line + " ").find(" avx512_bf16 ") != std::string::npos);
    return;
  }
  GTEST_SKIP() << "no flags in /proc/cpuinfo";
}

}  // namespace
}  // namespace legoai::comm
