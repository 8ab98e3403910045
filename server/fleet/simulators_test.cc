#include "server/fleet/simulators.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "core/process/mutex.h"

namespace legoai::server {
namespace {

using testing::ElementsAre;

// What all estimators of a test do: a simulation ends when it is let go.
class Bench {
 public:
  // "a 1": group and number are the model's name.
  void Begin(const std::string& name) {
    const MutexLock lock(mutex_);
    begun_.push_back(name);
    changed_.NotifyAll();
  }
  void LetGo(const std::string& name) {
    const MutexLock lock(mutex_);
    free_.insert(name);
  }
  bool MayEnd(const std::string& name) {
    const MutexLock lock(mutex_);
    return free_.count(name) > 0;
  }
  void Stop(const std::string& name) {
    const MutexLock lock(mutex_);
    stopped_.push_back(name);
    changed_.NotifyAll();
  }
  std::vector<std::string> AwaitBegun(size_t count) {
    MutexLock lock(mutex_);
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (begun_.size() < count && changed_.WaitUntil(lock, until)) {
    }
    return begun_;
  }
  std::vector<std::string> AwaitStopped(size_t count) {
    MutexLock lock(mutex_);
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (stopped_.size() < count && changed_.WaitUntil(lock, until)) {
    }
    return stopped_;
  }

 private:
  Mutex mutex_;
  Condition changed_;
  std::vector<std::string> begun_ ABSL_GUARDED_BY(mutex_), stopped_ ABSL_GUARDED_BY(mutex_);
  std::set<std::string> free_ ABSL_GUARDED_BY(mutex_);
};

class BenchEstimator : public planner::Estimator {
 public:
  explicit BenchEstimator(Bench* bench) : bench_(bench), thread_(std::this_thread::get_id()) {}
  ~BenchEstimator() override { EXPECT_EQ(thread_, std::this_thread::get_id()); }
  int64_t Slots() const override { return 1; }
  absl::Status Start(const v1::SimRequest& request) override {
    EXPECT_EQ(thread_, std::this_thread::get_id()) << "children die with the thread that spawned them";
    if (request.model().name() == "refused") return absl::NotFoundError("no program");
    EXPECT_TRUE(running_.empty());
    running_ = request.model().name(), id_ = request.id();
    bench_->Begin(running_);
    return absl::OkStatus();
  }
  absl::StatusOr<std::optional<v1::SimResponse>> Wait(absl::Duration) override {
    if (running_ == "broken") return absl::InternalError("no pipe");
    if (!bench_->MayEnd(running_)) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      return std::optional<v1::SimResponse>();
    }
    v1::SimResponse response;
    response.set_id(id_);
    response.mutable_estimate()->set_world_size(7);
    running_.clear();
    return std::optional<v1::SimResponse>(response);
  }
  void StopAll() override {
    bench_->Stop(running_);
    running_.clear();
  }

 private:
  Bench* const bench_;
  const std::thread::id thread_;
  std::string running_;
  uint64_t id_ = 0;
};

v1::SimRequest Request(const std::string& name, uint64_t id) {
  v1::SimRequest request;
  request.mutable_model()->set_name(name);
  request.set_id(id);
  return request;
}

class SimulatorsTest : public testing::Test {
 protected:
  std::function<std::unique_ptr<planner::Estimator>()> Make() {
    return [this] { return std::make_unique<BenchEstimator>(&bench_); };
  }
  static uint64_t Answer(planner::Estimator& share) {
    const auto answer = share.Wait(absl::Seconds(60));
    EXPECT_TRUE(answer.ok()) << answer.status();
    EXPECT_TRUE(answer.ok() && *answer && (*answer)->estimate().world_size() == 7);
    return answer.ok() && *answer ? (*answer)->id() : 0;
  }

  Bench bench_;
};

TEST_F(SimulatorsTest, AnswersComeToWhoeverAsked) {
  Simulators simulators(Make(), 2);
  const auto a = simulators.Share("a"), b = simulators.Share("b");
  EXPECT_EQ(a->Slots(), 2);
  ASSERT_TRUE(a->Start(Request("a", 5)).ok());
  ASSERT_TRUE(b->Start(Request("b", 5)).ok());
  EXPECT_FALSE(*a->Wait(absl::ZeroDuration()));
  bench_.LetGo("b");
  EXPECT_EQ(Answer(*b), 5u);
  EXPECT_FALSE(*a->Wait(absl::ZeroDuration()));
  bench_.LetGo("a");
  EXPECT_EQ(Answer(*a), 5u);
}

// The one that has fewer processes is next, whatever was asked first.
TEST_F(SimulatorsTest, GroupsTakeTurns) {
  Simulators simulators(Make(), 1);
  const auto a = simulators.Share("a"), b = simulators.Share("b");
  for (const char* name : {"a 1", "a 2", "a 3"}) ASSERT_TRUE(a->Start(Request(name, 1)).ok());
  EXPECT_THAT(bench_.AwaitBegun(1), ElementsAre("a 1"));
  for (const char* name : {"b 1", "b 2"}) ASSERT_TRUE(b->Start(Request(name, 1)).ok());
  for (const char* name : {"a 1", "a 2", "a 3", "b 1", "b 2"}) bench_.LetGo(name);
  EXPECT_THAT(bench_.AwaitBegun(5), ElementsAre("a 1", "b 1", "a 2", "b 2", "a 3"));
  for (int i = 0; i < 3; ++i) Answer(*a);
  for (int i = 0; i < 2; ++i) Answer(*b);
}

TEST_F(SimulatorsTest, AGroupThatHasAllProcessesGivesOneToAnother) {
  Simulators simulators(Make(), 2);
  const auto big = simulators.Share("big"), small = simulators.Share("small");
  ASSERT_TRUE(big->Start(Request("big 1", 1)).ok());
  bench_.AwaitBegun(1);
  ASSERT_TRUE(big->Start(Request("big 2", 2)).ok());
  EXPECT_THAT(bench_.AwaitBegun(2), ElementsAre("big 1", "big 2"));
  for (const char* name : {"small 1", "small 2"}) {
    bench_.LetGo(name);
    ASSERT_TRUE(small->Start(Request(name, 3)).ok());
    EXPECT_EQ(Answer(*small), 3u);
  }
  EXPECT_EQ(bench_.AwaitStopped(1)[0], "big 2") << "what was begun last loses least";
  bench_.LetGo("big 1"), bench_.LetGo("big 2");
  EXPECT_EQ(Answer(*big) + Answer(*big), 3u) << "it was begun anew";
}

// Of each plan: two of one group are told apart.
TEST_F(SimulatorsTest, TimeInWhichOthersHaveAllProcessesIsNotCharged) {
  constexpr absl::Duration kWhile = absl::Milliseconds(30);
  const auto charged = [](const SimulatorShare& share, absl::Duration wait) {
    const absl::Duration before = share.Clock();
    absl::SleepFor(wait);
    return share.Clock() - before;
  };
  Simulators simulators(Make(), 1);
  const auto a = simulators.Share("a"), b = simulators.Share("b"), more = simulators.Share("a");
  EXPECT_GE(charged(*b, kWhile), kWhile) << "nothing was asked: it is the planner's own time";
  ASSERT_TRUE(a->Start(Request("a", 1)).ok());
  bench_.AwaitBegun(1);
  ASSERT_TRUE(b->Start(Request("b", 1)).ok());
  ASSERT_TRUE(more->Start(Request("more", 1)).ok());
  EXPECT_GE(charged(*a, kWhile), kWhile);
  EXPECT_EQ(charged(*b, kWhile), absl::ZeroDuration());
  EXPECT_EQ(charged(*more, kWhile), absl::ZeroDuration());
  const absl::Duration before = a->Clock(), clock = more->Clock();
  more->StopAll();
  const absl::Duration clocked = more->Clock() - clock;
  EXPECT_LE(clocked, a->Clock() - before) << "what it had waited stays uncharged";
  bench_.LetGo("a");
  bench_.AwaitBegun(2);
  EXPECT_GE(charged(*b, kWhile), kWhile);
  bench_.LetGo("b");
  EXPECT_EQ(Answer(*b), 1u);
}

TEST_F(SimulatorsTest, WhatIsGivenUpEndsAndGivesNoAnswer) {
  Simulators simulators(Make(), 1);
  const auto a = simulators.Share("a"), b = simulators.Share("b");
  ASSERT_TRUE(a->Start(Request("a 1", 1)).ok());
  ASSERT_TRUE(a->Start(Request("a 2", 2)).ok());
  bench_.AwaitBegun(1);
  a->StopAll();
  EXPECT_THAT(bench_.AwaitStopped(1), ElementsAre("a 1"));
  for (const char* name : {"a 1", "a 2", "a 3"}) bench_.LetGo(name);
  ASSERT_TRUE(a->Start(Request("a 3", 3)).ok());
  EXPECT_EQ(Answer(*a), 3u);
  {
    const auto gone = simulators.Share("c");
    ASSERT_TRUE(gone->Start(Request("c", 1)).ok());
    bench_.AwaitBegun(3);
  }
  EXPECT_THAT(bench_.AwaitStopped(2), ElementsAre("a 1", "c"));
}

TEST_F(SimulatorsTest, ErrorsAreThoseOfWhoeverAsked) {
  Simulators simulators(Make(), 1);
  const auto a = simulators.Share("a"), b = simulators.Share("b");
  ASSERT_TRUE(a->Start(Request("refused", 1)).ok());
  EXPECT_EQ(a->Wait(absl::Seconds(60)).status(), absl::NotFoundError("no program"));
  ASSERT_TRUE(b->Start(Request("broken", 1)).ok());
  EXPECT_EQ(b->Wait(absl::Seconds(60)).status(), absl::InternalError("no pipe"));
}

}  // namespace
}  // namespace legoai::server
