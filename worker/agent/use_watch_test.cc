#include "worker/agent/use_watch.h"

#include <gtest/gtest.h>

#include <functional>

#include "absl/time/clock.h"
#include "core/hardware/testing/fake_gpus.h"
#include "core/process/memory.h"

namespace legoai::agent {
namespace {

using sim::testing::FakeGpus;
using sim::testing::FakeH100;

v1::WorkerUse Await(const UseWatch& watch, const std::function<bool(const v1::WorkerUse&)>& condition) {
  const absl::Time end = absl::Now() + absl::Minutes(2);
  while (absl::Now() < end) {
    const auto use = watch.Latest();
    if (use && condition(*use)) return *use;
    absl::SleepFor(absl::Milliseconds(5));
  }
  ADD_FAILURE() << "waited in vain";
  return {};
}

TEST(UseWatch, TellsOfProcessorsAndMemory) {
  const int64_t began = absl::ToUnixMicros(absl::Now());
  const UseWatch watch({}, absl::Milliseconds(50));
  const v1::WorkerUse use = Await(watch, [](const v1::WorkerUse& at) { return at.has_processor_share(); });
  EXPECT_GE(use.processor_share(), 0);
  EXPECT_LE(use.processor_share(), 1);
  EXPECT_GT(use.memory_bytes(), 0);
  EXPECT_LE(use.memory_bytes(), launch::HostMemoryBytes());
  EXPECT_GE(use.time_us(), began);
  EXPECT_EQ(use.gpus_size(), 0);
  Await(watch, [&](const v1::WorkerUse& at) { return at.time_us() > use.time_us(); });
}

TEST(UseWatch, EndsAtOnceHoweverSeldomItLooks) {
  const UseWatch watch({}, absl::Hours(10));
  EXPECT_FALSE(Await(watch, [](const v1::WorkerUse&) { return true; }).has_processor_share()) << "there was no look before";
}

TEST(UseWatch, TellsOfTheSlotsCards) {
  const FakeGpus fake({FakeH100("GPU-a"), FakeH100("GPU-b") + ",used=4096,utilization=50,temperature=40,draw=100500"});
  const UseWatch watch({1}, absl::Milliseconds(20));
  const v1::WorkerUse use = Await(watch, [](const v1::WorkerUse&) { return true; });
  ASSERT_EQ(use.gpus_size(), 1);
  EXPECT_EQ(use.gpus(0).index(), 1);
  EXPECT_EQ(use.gpus(0).memory_bytes(), 4096);
  EXPECT_DOUBLE_EQ(use.gpus(0).utilization(), 0.5);
  EXPECT_DOUBLE_EQ(use.gpus(0).temperature_celsius(), 40);
  EXPECT_DOUBLE_EQ(use.gpus(0).power_watts(), 100.5);
}

}  // namespace
}  // namespace legoai::agent
