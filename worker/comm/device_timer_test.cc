#include "worker/comm/device_timer.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

namespace legoai::comm {
namespace {

TEST(HostTimerTest, TellsTheTimeBetween) {
  const auto timer = MakeHostTimer();
  for (const int milliseconds : {20, 5}) {
    const auto before = std::chrono::steady_clock::now();
    ASSERT_TRUE(timer->Start().ok());
    std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
    const auto seconds = timer->Stop();
    const double whole = std::chrono::duration<double>(std::chrono::steady_clock::now() - before).count();
    ASSERT_TRUE(seconds.ok()) << seconds.status();
    EXPECT_GE(*seconds, 1e-3 * milliseconds);
    EXPECT_LE(*seconds, whole);
  }
}

TEST(HostTimerTest, IsNotStoppedTwice) {
  const auto timer = MakeHostTimer();
  EXPECT_EQ(timer->Stop().status().code(), absl::StatusCode::kFailedPrecondition);
  ASSERT_TRUE(timer->Start().ok());
  EXPECT_TRUE(timer->Stop().ok());
  EXPECT_EQ(timer->Stop().status().code(), absl::StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace legoai::comm
