#include "worker/comm/step_timeline.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "worker/comm/communicator.h"
#include "worker/comm/ops.h"
#include "worker/comm/runtime.h"
#include "worker/comm/streams.h"

namespace legoai::comm {
namespace {

using graph::Phase;

// The first of two ranks, whose peer is not there: an all-reduce does what the test says.
class ScriptedCommunicator : public Communicator {
 public:
  explicit ScriptedCommunicator(std::function<absl::Status()>* script) : script_(script) {}
  int64_t rank() const override { return 0; }
  int64_t size() const override { return 2; }
  absl::Status AllGather(void*, const void*, int64_t) override { return absl::OkStatus(); }
  absl::Status ReduceScatter(void*, const void*, int64_t, c10::ScalarType, ReduceOp) override { return absl::OkStatus(); }
  absl::Status AllReduce(void*, int64_t, c10::ScalarType, ReduceOp) override { return (*script_)(); }
  absl::Status AllToAll(void*, const void*, int64_t) override { return absl::OkStatus(); }
  absl::Status Rotate(void*, const void*, int64_t) override { return absl::OkStatus(); }
  absl::Status Broadcast(void*, int64_t, int64_t) override { return absl::OkStatus(); }
  absl::Status Send(const void*, int64_t, int64_t) override { return absl::OkStatus(); }
  absl::Status Recv(void*, int64_t, int64_t) override { return absl::OkStatus(); }

 private:
  std::function<absl::Status()>* const script_;
};

class StepTimelineTest : public ::testing::Test {
 protected:
  StepTimelineTest() {
    auto made = Runtime::Create(
        0, {{mesh::Dim::kDpReplicate, {0, 1, 2}}}, MakeThreadStreams(),
        [this](const mesh::Group&, int64_t, int64_t) -> absl::StatusOr<std::unique_ptr<Communicator>> {
          return std::make_unique<ScriptedCommunicator>(&script_);
        });
    EXPECT_TRUE(made.ok()) << made.status();
    runtime_ = *std::move(made);
    scope_ = std::make_unique<RuntimeScope>(runtime_.get());
  }
  // An all-reduce on `stream`, and an event behind it.
  void Reduce(int64_t stream) {
    {
      const StreamScope scope(stream);
      AllReduce(tensor_, 0);
    }
    RecordEvent(stream, 7);
  }

  std::function<absl::Status()> script_ = [] { return absl::OkStatus(); };
  const at::Tensor tensor_ = at::ones({4});
  StepTimeline timeline_;  // outlives the streams, which write into it
  std::unique_ptr<Runtime> runtime_;
  std::unique_ptr<RuntimeScope> scope_;
};

TEST_F(StepTimelineTest, NobodyListensButBetweenBeginAndEnd) {
  EXPECT_EQ(StepTimeline::Current(), nullptr);
  Reduce(kCompute);
  timeline_.Begin();
  EXPECT_EQ(StepTimeline::Current(), &timeline_);
  Reduce(kCompute);
  const auto times = timeline_.End();
  EXPECT_EQ(StepTimeline::Current(), nullptr);
  Reduce(kCompute);
  ASSERT_TRUE(times.ok()) << times.status();
  ASSERT_EQ(times->calls.size(), 1u);
  EXPECT_STREQ(times->calls[0].kind, "all_reduce");
  EXPECT_EQ(times->calls[0].stream, kCompute);
  timeline_.Begin();
  EXPECT_EQ(timeline_.End()->calls.size(), 0u) << "a step begins empty";
}

TEST_F(StepTimelineTest, ACallIsTimedWhereItRunsAndAWaitWhereItWaits) {
  std::atomic<bool> begun{false}, may_end{false};
  script_ = [&] {
    begun = true;
    while (!may_end) std::this_thread::yield();
    return absl::OkStatus();
  };
  timeline_.Begin();
  Reduce(kReplicate);
  while (!begun) std::this_thread::yield();
  {
    const auto beside = TimelineScope::Phase(Phase::kForward);  // computed while the collective runs
  }
  may_end = true;
  WaitEvent(kCompute, 7);
  ASSERT_TRUE(runtime_->Drain().ok());
  const auto times = timeline_.End();
  ASSERT_TRUE(times.ok()) << times.status();
  ASSERT_EQ(times->calls.size(), 1u);
  ASSERT_EQ(times->phases.size(), 1u);
  ASSERT_EQ(times->waits.size(), 2u) << "for the event, and for all streams";
  const TimeSpan call = times->calls[0].span, phase = times->phases[0].span, wait = times->waits[0];
  EXPECT_LE(call.begin_ns, phase.begin_ns);
  EXPECT_LE(phase.begin_ns, phase.end_ns);
  EXPECT_LE(phase.end_ns, call.end_ns);
  EXPECT_LE(phase.end_ns, wait.begin_ns);
  EXPECT_LE(call.end_ns, wait.end_ns);
  EXPECT_LE(wait.end_ns, times->length_ns);
}

TEST_F(StepTimelineTest, ACallBelongsToTheOperatorThatMadeIt) {
  timeline_.Begin();
  {
    const auto op = TimelineScope::Operator(12);
    Reduce(kReplicate);
  }
  Reduce(kReplicate);
  ASSERT_TRUE(runtime_->Drain().ok());
  const auto times = timeline_.End();
  ASSERT_TRUE(times.ok()) << times.status();
  ASSERT_EQ(times->operators.size(), 1u);
  EXPECT_EQ(times->operators[0].instruction, 12);
  ASSERT_EQ(times->calls.size(), 2u);
  EXPECT_EQ(times->calls[0].instruction, 12);
  EXPECT_EQ(times->calls[1].instruction, kNotRecorded);
}

TEST_F(StepTimelineTest, AfterAFailedCallThereAreNoTimes) {
  script_ = [] { return absl::UnavailableError("the peer is gone"); };
  timeline_.Begin();
  Reduce(kReplicate);
  EXPECT_FALSE(runtime_->Drain().ok());
  EXPECT_FALSE(timeline_.End().ok());
  EXPECT_EQ(StepTimeline::Current(), nullptr);
}

// A device that is at second N when it passes its N-th mark, whenever that is asked.
class CountingClock : public DeviceClock {
 public:
  std::unique_ptr<Mark> Now() override { return std::make_unique<Number>(next_++); }
  absl::StatusOr<double> Seconds(const Mark& from, const Mark& to) override {
    return static_cast<const Number&>(to).value - static_cast<const Number&>(from).value;
  }

 private:
  struct Number : Mark {
    explicit Number(int v) : value(v) {}
    int value;
  };
  int next_ = 0;
};

TEST(StepTimeline, ADevicesTimesAreThoseOfItsMarks) {
  StepTimeline timeline(std::make_unique<CountingClock>());
  timeline.Begin();  // mark 0
  {
    const auto phase = TimelineScope::Phase(Phase::kBackward);  // 1
    const auto wait = TimelineScope::Wait();                    // 2 and 3
  }                                                             // 4
  const auto times = timeline.End();                            // 5
  ASSERT_TRUE(times.ok()) << times.status();
  EXPECT_EQ(times->length_ns, 5'000'000'000);
  EXPECT_EQ(times->phases[0].span.begin_ns, 1'000'000'000);
  EXPECT_EQ(times->phases[0].span.end_ns, 4'000'000'000);
  EXPECT_EQ(times->waits[0].length_ns(), 1'000'000'000);
}

// As CUDA's: the time between two marks is a float of milliseconds, and only a later mark is timed from an earlier one.
class FloatClock : public DeviceClock {
 public:
  std::unique_ptr<Mark> Now() override { return gives_ ? std::make_unique<At>(now_ns_) : nullptr; }
  absl::StatusOr<double> Seconds(const Mark& from, const Mark& to) override {
    const int64_t ns = static_cast<const At&>(to).ns - static_cast<const At&>(from).ns;
    EXPECT_GE(ns, 0);
    return 1e-3 * static_cast<float>(1e-6 * static_cast<double>(ns));
  }
  int64_t now_ns_ = 0;
  bool gives_ = true;

 private:
  struct At : Mark {
    explicit At(int64_t at) : ns(at) {}
    int64_t ns;
  };
};

// Of a step of a minute; operators of microseconds, some of which another stream has long done when the next is dispatched.
TEST(StepTimeline, ADevicesTimesAreGoodToAFractionOfAMicrosecondInLongSteps) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  auto made = std::make_unique<FloatClock>();
  FloatClock& clock = *made;
  StepTimeline timeline(std::move(made));
  clock.now_ns_ = 5'000'000'000'000;
  const int64_t begin = clock.now_ns_;
  timeline.Begin();
  std::vector<TimeSpan> expected;
  const auto below = [&](int64_t limit) { return static_cast<int64_t>(random() % static_cast<uint64_t>(limit)); };
  for (int64_t at = 0; at < 60'000'000'000; at += below(below(50) == 0 ? 2'000'000'000 : 20'000'000)) {
    const int64_t early = below(3) == 0 ? std::min(at, below(300'000'000)) : 0;
    clock.now_ns_ = begin + at - early;
    const auto op = TimelineScope::Operator(0);
    const int64_t length = below(100'000);
    clock.now_ns_ += length;
    expected.push_back({at - early, at - early + length});
  }
  clock.now_ns_ = begin + 60'000'000'000;
  const auto times = timeline.End();
  ASSERT_TRUE(times.ok()) << times.status();
  EXPECT_NEAR(static_cast<double>(times->length_ns), 6e10, 4000);
  ASSERT_EQ(times->operators.size(), expected.size());
  ASSERT_GT(expected.size(), 500u);
  for (size_t i = 0; i < expected.size(); ++i) {
    const TimeSpan is = times->operators[i].span;
    ASSERT_NEAR(static_cast<double>(is.length_ns()), static_cast<double>(expected[i].length_ns()), 200) << i;
    ASSERT_NEAR(static_cast<double>(is.begin_ns), static_cast<double>(expected[i].begin_ns), 4000) << "what adds up, " << i;
  }
}

TEST(StepTimeline, WithoutMarksOfTheDeviceThereAreNoTimes) {
  auto made = std::make_unique<FloatClock>();
  FloatClock& clock = *made;
  StepTimeline timeline(std::move(made));
  timeline.Begin();
  clock.gives_ = false;
  {
    const auto wait = TimelineScope::Wait();
  }
  clock.gives_ = true;
  EXPECT_EQ(timeline.End().status().code(), absl::StatusCode::kUnavailable);
  timeline.Begin();
  EXPECT_TRUE(timeline.End().ok()) << "the next step is timed";
}

}  // namespace
}  // namespace legoai::comm
