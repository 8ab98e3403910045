#include "core/hardware/host.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <algorithm>
#include <chrono>

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

constexpr double kTicks = 100;

// Two processors; the sums are those of the lines below them, and guest times are in user and nice once more.
constexpr char kBefore[] =
    "cpu  300 20 80 1500 100 0 0 0 50 10\n"
    "cpu0 100 20 30 800 50 0 0 0 50 10\n"
    "cpu1 200 0 50 700 50 0 0 0 0 0\n"
    "intr 12345 0 0\nctxt 99\ncpufreq 7 7 7 7 7\n";
// 400 ticks on: cpu0 was 150 of 200 busy (20 of them stolen), cpu1 50 of 200.
constexpr char kAfter[] =
    "cpu  420 30 110 1680 120 10 10 20 60 20\n"
    "cpu0 190 30 40 840 60 10 10 20 60 20\n"
    "cpu1 230 0 70 840 60 0 0 0 0 0\n"
    "intr 12345 0 0\n";

ProcessorTimes Times(const std::string& text, const std::set<int>& cpus) {
  const auto times = ParseProcessorTimes(text, cpus, kTicks);
  EXPECT_TRUE(times.has_value());
  return times.value_or(ProcessorTimes());
}

TEST(ProcessorTimes, AreThoseOfTheProcessorsThatAreMeant) {
  EXPECT_DOUBLE_EQ(Times(kBefore, {}).busy_seconds, 4.0);
  EXPECT_DOUBLE_EQ(Times(kBefore, {}).all_seconds, 20.0);
  EXPECT_DOUBLE_EQ(Times(kBefore, {0}).busy_seconds, 1.5);
  EXPECT_DOUBLE_EQ(Times(kBefore, {1}).all_seconds, 10.0);
  EXPECT_DOUBLE_EQ(Times(kBefore, {0, 1}).busy_seconds, Times(kBefore, {}).busy_seconds);
  EXPECT_DOUBLE_EQ(Times(kBefore, {0, 1, 17}).all_seconds, Times(kBefore, {}).all_seconds);
}

TEST(ProcessorTimes, AreNoneWhereTheTextHasNone) {
  EXPECT_FALSE(ParseProcessorTimes("", {}, kTicks));
  EXPECT_FALSE(ParseProcessorTimes("intr 1 2 3 4 5\n", {}, kTicks));
  EXPECT_FALSE(ParseProcessorTimes(kBefore, {2}, kTicks));
  EXPECT_FALSE(ParseProcessorTimes("cpu 1 2 3\n", {}, kTicks)) << "without idle";
  EXPECT_TRUE(ParseProcessorTimes("cpu 1 2 3 4\n", {}, kTicks)) << "of an old kernel";
}

TEST(OthersShareTest, IsWhatIsBusyWithoutOnesOwn) {
  const auto share = [](const std::set<int>& cpus, double own) {
    return OthersShare(Times(kBefore, cpus), Times(kAfter, cpus), own).value();
  };
  EXPECT_NEAR(share({}, 0), 0.5, 1e-9);
  EXPECT_NEAR(share({}, 1.0), 0.25, 1e-9);
  EXPECT_NEAR(share({0}, 0.5), 0.5, 1e-9) << "a stolen tick is someone else's";
  EXPECT_NEAR(share({1}, 0.5), 0, 1e-9);
  EXPECT_NEAR(share({1}, 0.7), 0, 1e-9) << "ticks are coarse";
  EXPECT_NEAR(UsedShare(Times(kBefore, {1}), Times(kAfter, {1})).value(), 0.25, 1e-9);
  EXPECT_FALSE(OthersShare(Times(kBefore, {}), Times(kBefore, {}), 0)) << "no time has passed";
  EXPECT_FALSE(OthersShare(Times(kAfter, {}), Times(kBefore, {}), 0));
}

// On one processor, which this test keeps busy: its own second is no one else's.
TEST(OthersUseTest, OnesOwnWorkIsNotOthers) {
  cpu_set_t before, one;
  ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  CPU_ZERO(&one);
  int cpu = 0;
  while (!CPU_ISSET(cpu, &before)) ++cpu;
  CPU_SET(cpu, &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
  const auto began = AllowedProcessorTimes();
  const double own_before = OwnProcessorSeconds();
  const OthersUse others;
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(600);
  while (std::chrono::steady_clock::now() < end) {
  }
  const auto share = others.Share();
  const double own = OwnProcessorSeconds() - own_before;
  const auto after = AllowedProcessorTimes();
  ASSERT_EQ(sched_setaffinity(0, sizeof before, &before), 0);
  ASSERT_TRUE(began && after && share);
  const auto used = UsedShare(*began, *after);
  ASSERT_TRUE(used);
  constexpr double kCoarse = 0.1;  // the kernel counts in hundredths of a second
  EXPECT_NEAR(*share, std::max(0.0, *used - own / (after->all_seconds - began->all_seconds)), kCoarse);
}

}  // namespace
}  // namespace legoai::sim
