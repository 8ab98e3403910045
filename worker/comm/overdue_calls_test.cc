#include "worker/comm/overdue_calls.h"

#include <gtest/gtest.h>

namespace legoai::comm {
namespace {

using std::chrono::seconds;

struct FakeMark : StreamMark {
  explicit FakeMark(const bool* passed) : passed(passed) {}
  bool Passed() override { return *passed; }
  const bool* passed;
};

class OverdueCallsTest : public ::testing::Test {
 protected:
  struct Call {
    bool begun = false, done = false;
  };
  void Add(const char* what, const Call& call) {
    calls_.Add(what, std::make_unique<FakeMark>(&call.begun), std::make_unique<FakeMark>(&call.done));
  }
  const char* At(int second) { return calls_.Overdue(start_ + seconds(second)); }

  OverdueCalls calls_{seconds(100)};
  const OverdueCalls::Clock::time_point start_ = OverdueCalls::Clock::now();
};

TEST_F(OverdueCallsTest, CountsFromWhenTheDeviceIsInTheCall) {
  Call call;
  Add("all_gather", call);
  EXPECT_EQ(At(1000), nullptr) << "whatever is before it may take its time";
  call.begun = true;
  EXPECT_EQ(At(2000), nullptr);
  EXPECT_EQ(At(2099), nullptr);
  EXPECT_STREQ(At(2100), "all_gather");
  call.done = true;
  EXPECT_EQ(At(3000), nullptr);
  EXPECT_EQ(calls_.size(), 0u);
}

TEST_F(OverdueCallsTest, ACallBehindOneThatWaitsIsFound) {
  Call waits, hangs{.begun = true};
  Add("send", waits);
  Add("recv", hangs);
  EXPECT_EQ(At(0), nullptr);
  EXPECT_STREQ(At(100), "recv");
}

TEST_F(OverdueCallsTest, WhatIsDoneIsForgottenAsOthersCome) {
  const Call done{.begun = true, .done = true};
  for (int i = 0; i < 1000; ++i) Add("all_reduce", done);
  EXPECT_LE(calls_.size(), 1u);
}

TEST_F(OverdueCallsTest, WithoutMarksNothingIsSaid) {
  calls_.Add("all_reduce", nullptr, nullptr);
  EXPECT_EQ(At(1000000), nullptr);
}

}  // namespace
}  // namespace legoai::comm
