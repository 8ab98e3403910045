// The pool over real processes: testing/test_sim.cc speaks lego-sim's protocol and misbehaves by order.
#include "planner/lego_sim_pool.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "core/hardware/catalog.h"
#include "core/model/catalog.h"
#include "planner/estimates.h"
#include "planner/plan.h"
#include "proto/testing/assert_ok.h"

namespace legoai::planner {
namespace {

// No test waits that long unless something is wrong.
constexpr absl::Duration kPatience = absl::Seconds(120);

LegoSimOptions Options(int64_t processes = 1) {
  LegoSimOptions options;
  options.program = "planner/test_sim";
  options.processes = processes;
  options.time_limit = kPatience;
  return options;
}

v1::SimRequest Order(uint64_t id, const std::string& what) {
  v1::SimRequest request;
  request.set_id(id);
  request.mutable_model()->set_name(what);
  return request;
}

v1::SimResponse Await(LegoSimPool& pool) {
  for (const absl::Time end = absl::Now() + kPatience; absl::Now() < end;) {
    auto answer = pool.Wait(absl::Seconds(1));
    EXPECT_TRUE(answer.ok()) << answer.status();
    if (!answer.ok()) break;
    if (*answer) return **answer;
  }
  ADD_FAILURE() << "no answer came";
  return {};
}

v1::SimResponse Ask(LegoSimPool& pool, uint64_t id, const std::string& what) {
  const absl::Status status = pool.Start(Order(id, what));
  EXPECT_TRUE(status.ok()) << status;
  v1::SimResponse response = Await(pool);
  EXPECT_EQ(response.id(), id) << what;
  return response;
}

pid_t PidOf(const v1::SimResponse& response) { return static_cast<pid_t>(response.estimate().operators()); }

// Children of this process, dead but not reaped ones included.
std::set<pid_t> Children() {
  std::set<pid_t> children;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    std::ifstream file(entry.path() / "stat");
    std::string text;
    if (!std::getline(file, text)) continue;
    const std::vector<std::string> fields = absl::StrSplit(text.substr(text.rfind(')') + 2), ' ');
    if (fields.size() > 1 && fields[1] == absl::StrCat(getpid())) children.insert(std::stoi(text));
  }
  return children;
}

void ExpectError(const v1::SimResponse& response, absl::StatusCode code, const std::string& part) {
  EXPECT_EQ(response.error().code(), static_cast<int>(code)) << response.DebugString();
  EXPECT_NE(response.error().message().find(part), std::string::npos) << response.DebugString();
}

TEST(LegoSimPoolTest, AProcessServesManyRequests) {
  LegoSimPool pool(Options());
  const pid_t first = PidOf(Ask(pool, 1, "ok"));
  EXPECT_GT(first, 0);
  EXPECT_EQ(PidOf(Ask(pool, 2, "ok")), first);
  EXPECT_TRUE(pool.Start(Order(3, "hang")).ok());
  EXPECT_EQ(pool.Start(Order(4, "ok")).code(), absl::StatusCode::kResourceExhausted);
}

TEST(LegoSimPoolTest, ACrashIsAnAnswerThatSaysHow) {
  LegoSimPool pool(Options());
  ExpectError(Ask(pool, 1, "crash"), absl::StatusCode::kInternal, "signal 6");
  ExpectError(Ask(pool, 2, "exit"), absl::StatusCode::kInternal, "code 7");
  EXPECT_GT(PidOf(Ask(pool, 3, "ok")), 0);
  // Of one that has answered, too.
  ExpectError(Ask(pool, 4, "crash"), absl::StatusCode::kInternal, "signal 6");
  EXPECT_EQ(Children().size(), 0u);
}

TEST(LegoSimPoolTest, WhatIsNoAnswerIsAnError) {
  LegoSimPool pool(Options());
  for (const char* what : {"garbage", "other-id", "empty"}) {
    ExpectError(Ask(pool, 5, what), absl::StatusCode::kInternal, "lego-sim");
  }
  EXPECT_GT(PidOf(Ask(pool, 6, "ok")), 0);
}

TEST(LegoSimPoolTest, DeathBetweenRequestsIsBlamedOnNobody) {
  LegoSimPool pool(Options());
  const pid_t first = PidOf(Ask(pool, 1, "ok-then-exit"));
  // At once, where it may still be ending, and when it surely has ended.
  const pid_t second = PidOf(Ask(pool, 2, "ok-then-exit"));
  EXPECT_GT(second, 0);
  EXPECT_NE(second, first);
  siginfo_t info = {};
  ASSERT_EQ(waitid(P_PID, second, &info, WEXITED | WNOWAIT), 0);
  const pid_t third = PidOf(Ask(pool, 3, "ok"));
  EXPECT_GT(third, 0);
  EXPECT_NE(third, second);
}

TEST(LegoSimPoolTest, MarksOfEarlierRequestsAreBlamedOnNobody) {
  LegoSimOptions options = Options();
  options.resident_limit_bytes = int64_t{200} << 20;
  LegoSimPool pool(options);
  pid_t last = PidOf(Ask(pool, 1, "ok"));
  for (const char* what : {"crash-used", "exit-used", "eat-used"}) {
    const pid_t now = PidOf(Ask(pool, 2, what));
    EXPECT_GT(now, 0) << what;
    EXPECT_NE(now, last) << what;
    last = now;
  }
}

TEST(LegoSimPoolTest, TimeAndMemoryHaveLimits) {
  LegoSimOptions options = Options();
  options.resident_limit_bytes = int64_t{200} << 20;
  LegoSimPool by_memory(options);
  ExpectError(Ask(by_memory, 1, "eat"), absl::StatusCode::kResourceExhausted, "bytes of memory");
  EXPECT_GT(PidOf(Ask(by_memory, 2, "ok")), 0);
  options.time_limit = absl::Milliseconds(50);
  LegoSimPool by_time(options);
  ExpectError(Ask(by_time, 1, "hang"), absl::StatusCode::kDeadlineExceeded, "longer than 50.0 ms");
}

// Asks for what tells its progress; gives what was told with the last answer.
struct Told {
  std::vector<int64_t> done;
  v1::SimResponse last;
};
Told AskForProgress(LegoSimPool& pool, const std::string& what) {
  EXPECT_TRUE(pool.Start(Order(7, what)).ok());
  Told told;
  for (told.last = Await(pool); told.last.has_progress(); told.last = Await(pool)) {
    EXPECT_EQ(told.last.id(), 7u);
    told.done.push_back(told.last.progress().done());
  }
  return told;
}

// A limit that the whole exceeds, and no step of it.
TEST(LegoSimPoolTest, WhatMakesProgressIsNotCutOffAndWhatHangsIsSaidWithItsPlace) {
  LegoSimOptions options = Options();
  options.time_limit = absl::Milliseconds(1500);
  LegoSimPool pool(options);
  const Told slow = AskForProgress(pool, "slow");
  ASSERT_EQ(slow.done.size(), 20u);
  for (size_t i = 0; i < slow.done.size(); ++i) EXPECT_EQ(slow.done[i], static_cast<int64_t>(i) + 1);
  EXPECT_GT(PidOf(slow.last), 0) << slow.last.DebugString();
  for (const char* what : {"progress-hang", "progress-repeat"}) {
    ExpectError(AskForProgress(pool, what).last, absl::StatusCode::kDeadlineExceeded,
                "made no progress in 2 s (the step is replayed: 20 of 20)");
  }
  ExpectError(AskForProgress(pool, "progress-crash").last, absl::StatusCode::kInternal, "(the step is replayed: 20 of 20)");
  EXPECT_GT(PidOf(Ask(pool, 8, "ok")), 0);
}

TEST(LegoSimPoolTest, EstimateOnePassesProgressOn) {
  LegoSimPool pool(Options());
  std::vector<int64_t> done;
  ASSERT_OK_AND_ASSIGN(const auto estimate,
                       EstimateOne(Order(1, "slow"), pool, {}, [&](const v1::SimProgress& at) { done.push_back(at.done()); }));
  ASSERT_EQ(done.size(), 20u);
  EXPECT_EQ(done.back(), 20);
  EXPECT_EQ(EstimateOne(Order(2, "slow"), pool, [&] { return true; }).status().code(), absl::StatusCode::kCancelled);
  EXPECT_TRUE(Children().empty());
}

// Both are read at once, and then the socket has nothing more to say.
TEST(LegoSimPoolTest, AnAnswerThatComesTogetherWithProgressIsHeard) {
  LegoSimOptions options = Options();
  options.time_limit = absl::Seconds(10);
  LegoSimPool pool(options);
  for (uint64_t id = 1; id <= 3; ++id) {
    int told = 0;
    const auto estimate = EstimateOne(Order(id, "together"), pool, {}, [&](const v1::SimProgress&) { ++told; });
    EXPECT_TRUE(estimate.ok()) << estimate.status();
    EXPECT_EQ(told, 1);
  }
}

TEST(LegoSimPoolTest, EstimateAllGivesEachItsPlaceWhateverEndsFirst) {
  LegoSimPool pool(Options(2));
  std::vector<v1::SimRequest> requests;
  for (const char* what : {"slow", "ok", "crash", "ok", "ok"}) requests.push_back(Order(9, what));
  for (size_t i = 0; i < requests.size(); ++i) requests[i].mutable_recipe()->mutable_training()->set_steps(i + 100);
  std::vector<int64_t> done;
  ASSERT_OK_AND_ASSIGN(const auto estimates, EstimateAll(requests, pool, {}, [&](int64_t ended) { done.push_back(ended); }));
  EXPECT_EQ(done, (std::vector<int64_t>{1, 2, 3, 4, 5}));
  ASSERT_EQ(estimates.size(), requests.size());
  for (size_t i = 0; i < requests.size(); ++i) {
    const absl::StatusOr<v1::Estimate>& estimate = estimates[i];
    ASSERT_EQ(estimate.ok(), i != 2) << estimate.status();
    EXPECT_EQ(estimate.ok() ? estimate->recipe().training().steps() : -1, i == 2 ? -1 : static_cast<int64_t>(i) + 100);
  }
  EXPECT_EQ(EstimateAll(requests, pool, [] { return true; }).status().code(), absl::StatusCode::kCancelled);
  EXPECT_TRUE(EstimateAll({}, pool)->empty());
}

TEST(LegoSimPoolTest, StopAllEndsWhatIsUnderWay) {
  LegoSimPool pool(Options(2));
  const pid_t idle = PidOf(Ask(pool, 1, "ok"));
  ASSERT_TRUE(pool.Start(Order(2, "hang")).ok());
  ASSERT_TRUE(pool.Start(Order(3, "hang")).ok());
  EXPECT_EQ(Children().size(), 2u);
  pool.StopAll();
  EXPECT_EQ(Children().count(idle), 0u);
  ASSERT_OK_AND_ASSIGN(auto answer, pool.Wait(absl::Milliseconds(1)));
  EXPECT_FALSE(answer.has_value());
  EXPECT_GT(PidOf(Ask(pool, 4, "ok")), 0);
}

TEST(LegoSimPoolTest, NoProcessIsLeft) {
  {
    LegoSimPool pool(Options(3));
    for (uint64_t id = 1; id <= 3; ++id) ASSERT_TRUE(pool.Start(Order(id, id == 2 ? "ok" : "hang")).ok());
    EXPECT_EQ(Await(pool).id(), 2u);
    EXPECT_EQ(Children().size(), 3u);
  }
  EXPECT_TRUE(Children().empty());
}

TEST(LegoSimPoolTest, AProgramThatCannotRunIsAnErrorOfStart) {
  LegoSimOptions options = Options();
  options.program = "planner/no_such_program";
  LegoSimPool pool(options);
  EXPECT_EQ(pool.Start(Order(1, "ok")).code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(pool.Start(Order(2, "ok")).code(), absl::StatusCode::kNotFound);
}

v1::PlanRequest SmallPlan(const std::string& order) {
  v1::PlanRequest request;
  *request.mutable_model() = *model::ResolveModel("llama3-1b");
  request.mutable_model()->set_name(order);
  *request.mutable_cluster() = *sim::ParseCluster("h100-sxm-80:2x1");
  request.set_global_batch(2);
  request.set_seq_len(2048);
  return request;
}

// The whole chain: with a recipe that fits, captures that never end are stopped soon after the budget, and count as not reached.
TEST(LegoSimPoolTest, ThePlanEndsWhenItsBudgetDoes) {
  LegoSimPool pool(Options(2));
  v1::PlanRequest request = SmallPlan("hang-used");
  request.set_budget_seconds(0.05);
  ASSERT_OK_AND_ASSIGN(auto result, Plan(request, pool));
  EXPECT_GT(result.not_reached(), 2);
  EXPECT_GE(result.captured(), 1);
  EXPECT_LE(result.captured(), 2);
  EXPECT_EQ(result.failed(), 0);
  EXPECT_FALSE(result.ranked(0).estimated());
}

TEST(LegoSimPoolTest, ACancelledPlanLeavesNoProcess) {
  LegoSimPool pool(Options(2));
  bool closed_forms_done = false;
  int64_t polls = 0;  // since then; simulations start after the first
  auto result = Plan(
      SmallPlan("hang"), pool, [&](const PlanProgress&) { closed_forms_done = true; },
      [&] { return closed_forms_done && ++polls > 1; });
  EXPECT_EQ(result.status().code(), absl::StatusCode::kCancelled);
  EXPECT_TRUE(Children().empty());
}

TEST(LegoSimPoolTest, CrashesRejectTheirCandidatesAndNothingElse) {
  LegoSimPool pool(Options(2));
  ASSERT_OK_AND_ASSIGN(auto result, Plan(SmallPlan("crash"), pool));
  EXPECT_GT(result.failed(), 2);
  EXPECT_EQ(result.captured() + result.not_reached(), 0);
  ASSERT_GT(result.rejected_size(), 0);
  EXPECT_NE(result.rejected(result.rejected_size() - 1).reason().find("signal 6"), std::string::npos);
  EXPECT_TRUE(Children().empty());
}

}  // namespace
}  // namespace legoai::planner
