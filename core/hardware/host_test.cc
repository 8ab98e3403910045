#include "core/hardware/host.h"

#include <gtest/gtest.h>

#include "core/hardware/catalog.h"

namespace legoai::sim {
namespace {

TEST(HostTest, HasCoresAndAProcessor) {
  EXPECT_GE(HostPhysicalCores(), 1);
  EXPECT_FALSE(HostProcessor().empty());
}

TEST(HostDevice, APeakThatADeviceDoesNotHaveIsNone) {
  const auto cpu = FindDevice("cpu"), h100 = FindDevice("h100-sxm-80");
  ASSERT_TRUE(cpu.ok() && h100.ok());
  EXPECT_EQ(TruePeakFlops(*h100, v1::BFLOAT16), PeakFlops(*h100, v1::BFLOAT16)) << "a data sheet's";
  EXPECT_EQ(TruePeakFlops(*cpu, v1::FLOAT32), 0) << "of no machine in particular";
  v1::Device measured = *cpu;
  for (auto& efficiency : *measured.mutable_efficiencies()) efficiency.set_source("measured");
  EXPECT_EQ(TruePeakFlops(measured, v1::FLOAT32), PeakFlops(measured, v1::FLOAT32));
  EXPECT_EQ(TruePeakFlops(measured, v1::BFLOAT16), PeakFlops(measured, v1::BFLOAT16));
  for (auto& peak : *measured.mutable_peak_flops()) {
    if (peak.dtype() == v1::BFLOAT16) peak.set_flops_per_second(1e9);
  }
  EXPECT_EQ(TruePeakFlops(measured, v1::BFLOAT16), 0) << "in software";
  EXPECT_GT(TruePeakFlops(measured, v1::FLOAT32), 0);
}

TEST(HostDevice, SaysThatOthersWereBusyWhileItWasMeasured) {
  v1::Device device;
  EXPECT_EQ(MeasuredBusyText(device), "") << "it is not known of files that are older";
  device.set_measured_while_busy(kBusyShare);
  EXPECT_FALSE(WasMeasuredBusy(device));
  EXPECT_EQ(MeasuredBusyText(device), "");
  device.set_measured_while_busy(0.43);
  EXPECT_TRUE(WasMeasuredBusy(device));
  const std::string text = MeasuredBusyText(device);
  EXPECT_EQ(text.find("others took 43.0 % of the processors while this machine was measured"), 0u) << text;
  EXPECT_NE(text.find("`lego hardware --measure`"), std::string::npos) << text;
}

TEST(HostDevice, Bfloat16IsAFlagOfTheProcessor) {
  EXPECT_TRUE(HasBfloat16("processor\t: 0\nflags\t\t: fpu sse2 avx512f avx512_bf16 amx_tile\n"));
  EXPECT_TRUE(HasBfloat16("flags\t\t: fpu amx_bf16\n"));
  EXPECT_TRUE(HasBfloat16("Features\t: fp asimd sve i8mm bf16\n"));
  EXPECT_FALSE(HasBfloat16("model name\t: bf16 of a name\nflags\t\t: fpu avx2 avx512f avx512vl\nbugs\t\t: none\n"));
  EXPECT_FALSE(HasBfloat16(""));
}

}  // namespace
}  // namespace legoai::sim
