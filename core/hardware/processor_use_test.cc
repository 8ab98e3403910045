#include "core/hardware/processor_use.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <algorithm>
#include <chrono>

namespace legoai::sim {
namespace {

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
