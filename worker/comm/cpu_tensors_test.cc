#include "worker/comm/cpu_tensors.h"

#include <ATen/ops/add.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <optional>
#include <random>
#include <set>
#include <sstream>
#include <string>
#include <vector>

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

// Page faults of a step that makes 128 tensors of 1 MiB, live all at once, and frees them.
int64_t FaultsOfStep() {
  const auto faults = [] {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_minflt;
  };
  const int64_t before = faults();
  std::vector<at::Tensor> tensors;
  for (int i = 0; i < 128; ++i) tensors.push_back(at::ones({1 << 18}));
  tensors.clear();
  return faults() - before;
}

TEST(CpuMemory, FreedBlocksAreKeptForTheNextStep) {
  testing::GTEST_FLAG(death_test_style) = "threadsafe";
  constexpr int kWarmUp = 8;  // until blocks of this alignment have found their places
  EXPECT_EXIT(
      {
        KeepFreedMemory();
        for (int i = 0; i < kWarmUp; ++i) FaultsOfStep();
        const int64_t again = FaultsOfStep();
        std::fprintf(stderr, "faults: %lld\n", static_cast<long long>(again));
        std::_Exit(again < 100 ? 0 : 1);
      },
      testing::ExitedWithCode(0), "faults: ");
  EXPECT_EXIT(
      {
        for (int i = 0; i < kWarmUp; ++i) FaultsOfStep();
        std::_Exit(FaultsOfStep() > 1000 ? 0 : 1);  // what it is for
      },
      testing::ExitedWithCode(0), "");
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

TEST(CpuMemory, BlocksAreReusedWhereThatIsAskedFor) {
  InstallCpuMemoryCounter();
  const int64_t before = CpuLiveBytes();
  const auto make = [](int64_t bytes) { return at::empty({bytes}, at::kByte); };
  ResetCpuPeakBytes();
  make(10'000);  // the peak, which leaves room for all that follows
  {
    const CpuBlockReuse reuse;
    const void* const first = make(4000).const_data_ptr();
    EXPECT_EQ(CpuLiveBytes(), before);
    EXPECT_EQ(CpuKeptBytes(), 4000);
    const at::Tensor other = make(3000), same = make(4000);
    EXPECT_EQ(same.const_data_ptr(), first);
    EXPECT_EQ(CpuLiveBytes() - before, 7000);
    EXPECT_EQ(CpuKeptBytes(), 0);
  }
  EXPECT_EQ(CpuLiveBytes(), before);
  EXPECT_EQ(CpuKeptBytes(), 7000);
  make(5000);
  EXPECT_EQ(CpuKeptBytes(), 3000) << "the larger one is given back for a block that would exceed the peak";
  const CpuBlockReuse again;
  const at::Tensor kept = make(3000);
  EXPECT_EQ(CpuKeptBytes(), 0);
}

// Whatever is made and freed: live and kept bytes stay within what was alive at once.
TEST(CpuMemory, KeptBlocksStayWithinThePeak) {
  InstallCpuMemoryCounter();
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  std::vector<at::Tensor> tensors(20);
  const int64_t before = CpuLiveBytes();
  int64_t most_kept = 0;
  for (int round = 0; round < 3; ++round) {
    std::optional<CpuBlockReuse> reuse;
    if (round < 2) reuse.emplace();
    for (int i = 0; i < 2000; ++i) {
      const int64_t bytes = 1 + static_cast<int64_t>(random() % 40) * 100;
      tensors[random() % tensors.size()] = at::full({bytes}, 1, at::kByte);
      most_kept = std::max(most_kept, CpuKeptBytes());
      ASSERT_LE(CpuLiveBytes() + CpuKeptBytes(), CpuPeakBytes());
    }
  }
  EXPECT_GT(most_kept, 0);
  int64_t alive = 0;
  for (const at::Tensor& tensor : tensors) alive += tensor.defined() ? static_cast<int64_t>(tensor.nbytes()) : 0;
  EXPECT_EQ(CpuLiveBytes() - before, alive);
}

}  // namespace
}  // namespace legoai::comm
