#include "worker/comm/streams.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "core/trace/annotation.h"

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

TEST(ThreadStreams, AWaitIsForTheLatestRecordBeforeIt) {
  const auto streams = MakeThreadStreams();
  int done = 0;
  for (int round = 1; round <= 20; ++round) {
    ASSERT_TRUE(streams->Post(kAllGather, [&] { return ++done, absl::OkStatus(); }).ok());
    ASSERT_TRUE(streams->Record(kAllGather, 1).ok());
    ASSERT_TRUE(streams->Wait(kCompute, 1).ok());
    EXPECT_EQ(done, round);
  }
}

TEST(ThreadStreams, TheFirstFailureOfASideStreamEndsTheWorkOnAll) {
  const auto streams = MakeThreadStreams();
  const absl::Status first = absl::UnavailableError("the first");
  bool ran = false;
  ASSERT_TRUE(streams->Post(kAllGather, [&] { return first; }).ok());
  ASSERT_TRUE(streams->Post(kAllGather, [] { return absl::UnavailableError("the second"); }).ok());
  EXPECT_EQ(streams->Drain(), first);
  ASSERT_TRUE(streams->Post(kReduceScatter, [&] { return ran = true, absl::OkStatus(); }).ok());
  EXPECT_EQ(streams->Drain(), first);
  EXPECT_FALSE(ran);
}

TEST(FakeStreams, NothingRuns) {
  const auto streams = MakeFakeStreams();
  EXPECT_TRUE(streams->Post(kCompute, [] { return absl::InternalError("work of the fake device ran"); }).ok());
  EXPECT_TRUE(streams->Drain().ok());
}

}  // namespace
}  // namespace legoai::comm
