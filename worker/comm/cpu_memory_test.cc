#include "worker/comm/cpu_memory.h"

#include <ATen/ops/add.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include <cstdint>

namespace legoai::comm {
namespace {

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
