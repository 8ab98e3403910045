#include "worker/comm/stream_marks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <utility>
#include <vector>

namespace legoai::comm {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// How far the work of a stream has come; its marks are numbered from 1.
using Progress = std::atomic<int>;

class TestMark : public StreamMark {
 public:
  TestMark(const Progress& progress, int number) : progress_(progress), number_(number) { ++alive; }
  ~TestMark() override { --alive; }
  bool Passed() override { return progress_ >= number_; }
  static inline std::atomic<int> alive{0};

 private:
  const Progress& progress_;
  const int number_;
};

class MarkWatchTest : public ::testing::Test {
 protected:
  std::unique_ptr<StreamMark> Mark(int stream, int number) { return std::make_unique<TestMark>(progress_[stream], number); }
  std::function<void(const MarkWatch::Moment&)> Keep() {
    return [this](const MarkWatch::Moment& moment) {
      seen_.push_back((moment.completed ? "done " : "start ") + std::to_string(moment.record));
      ++count_;
    };
  }
  // A call of two marks.
  void AddCall(MarkWatch& watch, int stream, uint64_t record, int first_mark) {
    watch.Add(stream, {record, false}, Mark(stream, first_mark));
    watch.Add(stream, {record, true}, Mark(stream, first_mark + 1));
  }

  Progress progress_[2] = {0, 0};
  std::atomic<int> count_{0};
  std::vector<std::string> seen_;
};

TEST_F(MarkWatchTest, TellsEachMomentOnceWhenItsMarkIsPassed) {
  MarkWatch watch(100, Keep(), std::nullopt);
  AddCall(watch, 0, 1, 1);
  AddCall(watch, 0, 2, 3);
  watch.Poll();
  EXPECT_THAT(seen_, IsEmpty());
  progress_[0] = 1;
  watch.Poll();
  EXPECT_THAT(seen_, ElementsAre("start 1"));
  progress_[0] = 3;
  watch.Poll();
  watch.Poll();
  EXPECT_THAT(seen_, ElementsAre("start 1", "done 1", "start 2"));
  EXPECT_EQ(watch.pending(), 1u);
  progress_[0] = 4;
  watch.Poll();
  EXPECT_EQ(seen_.back(), "done 2");
  EXPECT_EQ(watch.pending(), 0u);
  EXPECT_EQ(TestMark::alive, 0);
}

TEST_F(MarkWatchTest, AStreamThatHangsHidesNothingOfAnother) {
  MarkWatch watch(100, Keep(), std::nullopt);
  AddCall(watch, 0, 1, 1);
  AddCall(watch, 1, 2, 1);
  AddCall(watch, 0, 3, 3);
  AddCall(watch, 1, 4, 3);
  progress_[0] = 1;  // inside record 1, for good
  progress_[1] = 4;
  watch.Poll();
  EXPECT_THAT(seen_, ElementsAre("start 1", "start 2", "done 2", "start 4", "done 4"));
  EXPECT_EQ(watch.pending(), 3u);
}

TEST_F(MarkWatchTest, MarksOfRecordsThatTheRingHasOverwrittenAreLetGo) {
  MarkWatch watch(10, Keep(), std::nullopt);
  for (int i = 1; i <= 1000; ++i) {
    AddCall(watch, 0, i, 2 * i - 1);
    ASSERT_LE(watch.pending(), 20u);
    ASSERT_LE(TestMark::alive, 20);
  }
  AddCall(watch, 1, 1001, 1);  // another stream's calls count, too
  EXPECT_EQ(watch.pending(), 20u);
  progress_[0] = 2000;
  watch.Poll();
  EXPECT_EQ(seen_.size(), 18u);
  EXPECT_EQ(seen_.front(), "start 992");
}

TEST_F(MarkWatchTest, WithAThreadNobodyNeedsToAsk) {
  MarkWatch watch(100, Keep(), std::chrono::milliseconds(1));
  for (int i = 1; i <= 3; ++i) {  // it goes to sleep in between and wakes up again
    AddCall(watch, 0, i, 2 * i - 1);
    progress_[0] = 2 * i;
    while (count_ < 2 * i) std::this_thread::yield();
    EXPECT_EQ(watch.pending(), 0u);
  }
}

TEST_F(MarkWatchTest, SeveralThreadsAddAndAsk) {
  {
    MarkWatch watch(1000, Keep(), std::chrono::milliseconds(1));
    std::vector<std::thread> threads;
    for (int stream = 0; stream < 2; ++stream) {
      threads.emplace_back([&, stream] {
        for (int i = 1; i <= 200; ++i) {
          watch.Add(stream, {static_cast<uint64_t>(i), true}, Mark(stream, i));
          progress_[stream] = i;
          if (i % 3 == 0) watch.Poll();
        }
      });
    }
    for (auto& thread : threads) thread.join();
  }  // looks once more
  EXPECT_EQ(count_, 400);
  EXPECT_EQ(TestMark::alive, 0);
}

TEST_F(MarkWatchTest, EndsWithMarksThatAreNeverPassed) {
  { MarkWatch watch(100, Keep(), std::chrono::hours(1)); }
  {
    MarkWatch watch(100, Keep(), std::chrono::hours(1));
    AddCall(watch, 0, 1, 1);
  }
  EXPECT_THAT(seen_, IsEmpty());
  EXPECT_EQ(TestMark::alive, 0);
}

constexpr int kBefore = 0, kBegun = 1, kDone = 2;  // progress of a call

class OverdueCallsTest : public ::testing::Test {
 protected:
  void Add(const char* what, const Progress& call) {
    calls_.Add(what, std::make_unique<TestMark>(call, 1), std::make_unique<TestMark>(call, 2));
  }
  const char* At(int second) { return calls_.Overdue(start_ + std::chrono::seconds(second)); }

  OverdueCalls calls_{std::chrono::seconds(100)};
  const OverdueCalls::Clock::time_point start_ = OverdueCalls::Clock::now();
};

TEST_F(OverdueCallsTest, CountsFromWhenTheDeviceIsInTheCall) {
  Progress call = kBefore;
  Add("all_gather", call);
  EXPECT_EQ(At(1000), nullptr) << "whatever is before it may take its time";
  call = kBegun;
  EXPECT_EQ(At(2000), nullptr);
  EXPECT_EQ(At(2099), nullptr);
  EXPECT_STREQ(At(2100), "all_gather");
  call = kDone;
  EXPECT_EQ(At(3000), nullptr);
  EXPECT_EQ(calls_.size(), 0u);
}

TEST_F(OverdueCallsTest, ACallBehindOneThatWaitsIsFound) {
  const Progress waits = kBefore, hangs = kBegun;
  Add("send", waits);
  Add("recv", hangs);
  EXPECT_EQ(At(0), nullptr);
  EXPECT_STREQ(At(100), "recv");
}

TEST_F(OverdueCallsTest, WhatIsDoneIsForgottenAsOthersCome) {
  const Progress done = kDone;
  for (int i = 0; i < 1000; ++i) Add("all_reduce", done);
  EXPECT_LE(calls_.size(), 1u);
}

TEST_F(OverdueCallsTest, WithoutMarksNothingIsSaid) {
  calls_.Add("all_reduce", nullptr, nullptr);
  EXPECT_EQ(At(1000000), nullptr);
}

}  // namespace
}  // namespace legoai::comm
