#include "worker/comm/cpu_tensors.h"

#include <ATen/ops/add.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <set>
#include <sstream>
#include <string>

namespace legoai::comm {
namespace {

constexpr char kVariable[] = "ONEDNN_MAX_CPU_ISA";

// What the kernel lists of this CPU.
std::set<std::string> Flags() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("flags", 0) != 0) continue;
    std::istringstream words(line.substr(line.find(':') + 1));
    return {std::istream_iterator<std::string>(words), {}};
  }
  return {};
}

// Of a process of its own: oneDNN reads the variable once.
void ExpectAnswers(const char* most, bool onednn, bool known) {
  EXPECT_EXIT(
      {
        if (most != nullptr) setenv(kVariable, most, 1);
        UseKnownCpuKernels();
        std::_Exit((OneDnnComputesBfloat16() ? 1 : 0) + (CpuKernelsAreKnownForBfloat16() ? 2 : 0));
      },
      testing::ExitedWithCode((onednn ? 1 : 0) + (known ? 2 : 0)), "");
}

TEST(CpuKernels, AreThoseOfAvx512UnlessTheUserSaysOtherwise) {
  unsetenv(kVariable);
  UseKnownCpuKernels();
  EXPECT_STREQ(getenv(kVariable), "AVX512_CORE_BF16");
  setenv(kVariable, "ALL", 1);
  UseKnownCpuKernels();
  EXPECT_STREQ(getenv(kVariable), "ALL");
  unsetenv(kVariable);
}

TEST(CpuKernels, OneDnnComputesBfloat16WhereTheCpuHasAvx512) {
  testing::GTEST_FLAG(death_test_style) = "threadsafe";
  const std::set<std::string> flags = Flags();
  if (flags.empty()) GTEST_SKIP() << "no flags in /proc/cpuinfo";
  const bool avx512 = flags.count("avx512bw") + flags.count("avx512vl") + flags.count("avx512dq") == 3;
  unsetenv(kVariable);
  ExpectAnswers(nullptr, avx512, !avx512 || flags.count("avx512_bf16") > 0);
}

TEST(CpuKernels, WithoutAvx512LibTorchsOwnLoopsDo) {
  testing::GTEST_FLAG(death_test_style) = "threadsafe";
  ExpectAnswers("AVX2", false, true);
}

TEST(CpuMemory, CountsRequestedBytesOfLiveTensors) {
  InstallCpuMemoryCounter();
  const int64_t before = CpuLiveBytes();
  at::Tensor a = at::ones({1000}, at::kFloat);
  EXPECT_EQ(CpuLiveBytes() - before, 4000);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(a.data_ptr()) % 64, 0u);
  {
    const at::Tensor b = at::add(a, a);
    EXPECT_EQ(CpuLiveBytes() - before, 8000);
  }
  const at::Tensor view = a.slice(0, 0, 10);
  const at::Tensor nothing = at::empty({0}, at::kFloat);
  EXPECT_EQ(CpuLiveBytes() - before, 4000);
  EXPECT_EQ(CpuPeakBytes() - before, 8000);
  ResetCpuPeakBytes();
  EXPECT_EQ(CpuPeakBytes() - before, 4000);
  a = at::Tensor();
  EXPECT_EQ(CpuLiveBytes() - before, 4000) << "the view holds it";
}

}  // namespace
}  // namespace legoai::comm
