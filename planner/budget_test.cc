// What a budget means on machines of any speed: it ends planning when a recipe is known to fit, and never before.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "core/hardware/catalog.h"
#include "core/model/catalog.h"
#include "planner/legal.h"
#include "planner/plan.h"
#include "planner/ranking.h"
#include "planner/schedule.h"
#include "planner/testing/slow_estimator.h"
#include "proto/testing/assert_ok.h"
#include "proto/testing/seeded_random.h"

namespace legoai::planner {
namespace {

using testing::Outcome;
using testing::SlowEstimator;

v1::PlanRequest Request() {
  v1::PlanRequest request;
  *request.mutable_model() = *model::ResolveModel("llama3-1b");
  *request.mutable_cluster() = *sim::ParseCluster("h100-sxm-80:4x1");
  request.set_global_batch(8);
  request.set_seq_len(2048);
  request.set_budget_seconds(0.001);
  request.mutable_base()->mutable_optimizer()->set_master_weights(false);  // or it would be tried last
  return request;
}

absl::StatusOr<v1::PlanResult> PlanOn(SlowEstimator& estimator, const v1::PlanRequest& request,
                                      const std::function<void(const PlanProgress&)>& progress = {}) {
  return Plan(request, estimator, progress, {}, [&] { return estimator.Now(); });
}

int64_t Simulated(const v1::PlanResult& result) {
  return std::count_if(result.ranked().begin(), result.ranked().end(), [](const auto& ranked) { return !ranked.estimated(); });
}

// Simulated ones first, each kind fastest first (all leave the same memory), numbered; counts add up.
void ExpectInOrder(const v1::PlanResult& result) {
  for (int i = 0; i < result.ranked_size(); ++i) {
    EXPECT_EQ(result.ranked(i).rank(), i + 1);
    if (i == 0) continue;
    const auto &before = result.ranked(i - 1), &ranked = result.ranked(i);
    EXPECT_LE(before.estimated(), ranked.estimated());
    if (before.estimated() == ranked.estimated()) {
      EXPECT_LE(before.step_time_seconds(), ranked.step_time_seconds());
    }
  }
  int64_t sum = result.bounded_out() + result.captured() + result.failed() + result.not_reached();
  for (const auto& [_, count] : result.pruned()) sum += count;
  EXPECT_EQ(result.space(), sum);
}

TEST(Budget, AMillisecondOnASlowMachineGivesOneSimulatedRecipe) {
  SlowEstimator estimator(2, [](const v1::SimRequest&) { return Outcome{.takes = absl::Seconds(90)}; });
  ASSERT_OK_AND_ASSIGN(const auto result, PlanOn(estimator, Request()));
  EXPECT_TRUE(HasRecipe(result));
  EXPECT_GE(Simulated(result), 1);
  EXPECT_LE(result.captured(), 2);
  EXPECT_EQ(result.ranked_size(), kDefaultTop);
  EXPECT_EQ(estimator.Now(), absl::Seconds(90));
  ExpectInOrder(result);
  EXPECT_NE(result.explanation().find("marked as estimated"), std::string::npos) << result.explanation();
}

// A count ends planning first where there are seconds enough: then they change nothing, and nobody is told that they did.
TEST(Budget, SecondsThatAreEnoughChangeNothing) {
  v1::PlanRequest request = Request();
  std::set<std::string> plans;
  for (const double seconds : {100.0, 1000.0, 1e6}) {
    SlowEstimator estimator(2, [](const v1::SimRequest&) { return Outcome{.takes = absl::Seconds(1)}; });
    request.set_budget_seconds(seconds);
    ASSERT_OK_AND_ASSIGN(auto result, PlanOn(estimator, request));
    EXPECT_LE(estimator.started(), kSimulations);
    EXPECT_EQ(result.explanation().find("Stopped early"), std::string::npos) << result.explanation();
    result.set_seconds(0);
    plans.insert(result.DebugString());
  }
  EXPECT_EQ(plans.size(), 1u);
}

TEST(Budget, AnEarlyEndIsSaidInNumbers) {
  SlowEstimator estimator(1, [](const v1::SimRequest&) { return Outcome{.takes = absl::Seconds(4)}; });
  v1::PlanRequest request = Request();
  request.set_budget_seconds(10);
  ASSERT_OK_AND_ASSIGN(const auto result, PlanOn(estimator, request));
  const auto planned = std::min<int64_t>(kSimulations, static_cast<int64_t>(PruneSpace(request)->survivors.size()));
  EXPECT_EQ(result.captured(), 2);
  EXPECT_NE(result.explanation().find("Stopped early after 2 of " + std::to_string(planned) +
                                      " simulations by the budget of 10 s; the ranking may change with more time"),
            std::string::npos)
      << result.explanation();
}

TEST(Budget, WhatIsUnderWayWhenItEndsGetsASecondOnceOneFits) {
  int64_t asked = 0;
  SlowEstimator estimator(3, [&](const v1::SimRequest&) {
    ++asked;
    return Outcome{.takes = asked == 1 ? absl::Seconds(4) : asked == 2 ? absl::Milliseconds(10600) : absl::Hours(1)};
  });
  v1::PlanRequest request = Request();
  request.set_budget_seconds(10);
  ASSERT_OK_AND_ASSIGN(const auto result, PlanOn(estimator, request));
  EXPECT_EQ(result.captured(), 2);
  EXPECT_EQ(estimator.started(), 4);
  EXPECT_EQ(estimator.under_way(), 0);
  EXPECT_EQ(estimator.Now(), absl::Seconds(10) + kGrace);
  ExpectInOrder(result);
}

TEST(Budget, WhatDoesNotFitIsFollowedByMoreUntilOneFits) {
  int64_t asked = 0;
  SlowEstimator estimator(1, [&](const v1::SimRequest&) {
    ++asked;
    return Outcome{.takes = absl::Seconds(20), .fits = asked == 6, .fails = asked % 2 == 0 && asked != 6};
  });
  ASSERT_OK_AND_ASSIGN(const auto result, PlanOn(estimator, Request()));
  EXPECT_EQ(Simulated(result), 1);
  EXPECT_EQ(estimator.started(), 6);
  EXPECT_EQ(result.captured_unfit(), 3);
  EXPECT_EQ(result.failed(), 2);
  ExpectInOrder(result);
}

TEST(Budget, ItIsToldThatPlanningGoesOn) {
  SlowEstimator estimator(1, [&](const v1::SimRequest&) { return Outcome{.takes = absl::Seconds(30)}; });
  int64_t after_the_budget = 0;
  const auto result = PlanOn(estimator, Request(), [&](const PlanProgress& progress) {
    after_the_budget += progress.elapsed_seconds > 0.001 && progress.best_step_seconds == 0;
  });
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_GE(after_the_budget, 25) << "about each second";
}

// What never answers ends planning too, at a stated limit; then the closed forms alone rank, and no recipe is to be run.
TEST(Budget, NothingThatEndsGivesEstimatesThatAreMarked) {
  SlowEstimator estimator(2, [](const v1::SimRequest&) { return Outcome{.takes = absl::Hours(1)}; });
  ASSERT_OK_AND_ASSIGN(const auto result, PlanOn(estimator, Request()));
  EXPECT_GE(estimator.Now(), kFirstFitLimit);
  EXPECT_LE(estimator.Now(), kFirstFitLimit + absl::Seconds(2));
  EXPECT_EQ(estimator.under_way(), 0);
  EXPECT_FALSE(HasRecipe(result));
  EXPECT_EQ(Simulated(result), 0);
  ASSERT_EQ(result.ranked_size(), kDefaultTop);
  ExpectInOrder(result);
  EXPECT_NE(result.explanation().find("marked as estimated"), std::string::npos) << result.explanation();
  EXPECT_EQ(result.explanation().find("fits. The closest"), std::string::npos) << result.explanation();
}

TEST(Budget, CancellingEndsItBeyondTheBudgetToo) {
  SlowEstimator estimator(2, [](const v1::SimRequest&) { return Outcome{.takes = absl::Hours(1)}; });
  const auto result = Plan(
      Request(), estimator, {}, [&] { return estimator.Now() > absl::Seconds(5); }, [&] { return estimator.Now(); });
  EXPECT_EQ(result.status().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(estimator.under_way(), 0);
  EXPECT_LT(estimator.Now(), absl::Seconds(6));
}

TEST(Budget, EstimatesAreThoseOfTheClosedForms) {
  SlowEstimator estimator(1, [](const v1::SimRequest&) { return Outcome{.takes = absl::Hours(1)}; });
  v1::PlanRequest request = Request();
  request.set_top(100000);
  ASSERT_OK_AND_ASSIGN(const auto result, PlanOn(estimator, request));
  ASSERT_OK_AND_ASSIGN(const auto space, PruneSpace(request));
  ASSERT_EQ(result.ranked_size(), static_cast<int>(space.survivors.size()));
  for (int i = 0; i < result.ranked_size(); ++i) {
    const auto& ranked = result.ranked(i);
    const Survivor& survivor = space.survivors[i];
    EXPECT_EQ(ranked.recipe().SerializeAsString(), survivor.recipe.SerializeAsString());
    EXPECT_EQ(ranked.step_time_seconds(), survivor.roofline.step_seconds);
    EXPECT_EQ(ranked.peak_memory_bytes(), survivor.bound_bytes);
    EXPECT_NEAR(ranked.tokens_per_second_per_gpu() * 4 * ranked.step_time_seconds(), 8 * 2048, 1e-6);
    const auto& parts = ranked.breakdown();
    EXPECT_NEAR(
        parts.compute_seconds() + parts.exposed_communication_seconds() + parts.bubble_seconds() + parts.optimizer_seconds(),
        ranked.step_time_seconds(), 1e-9);
    EXPECT_GT(ranked.mfu(), 0);
    EXPECT_LT(ranked.mfu(), 1);
  }
}

// Over random machines and recipes that fit, do not, or fail: a plan names a recipe whenever one fits, and says so only then.
TEST(Budget, NeverEmptyIfAnythingFits) {
  SeededRandom random;
  ASSERT_OK_AND_ASSIGN(const auto space, PruneSpace(Request()));
  for (int round = 0; round < 60; ++round) {
    // From nearly nothing to everything; slow enough to overrun any budget, quick enough for all to end within the limit.
    const double share = std::pow(10, -3 * std::uniform_real_distribution<>(0, 1)(random));
    const int64_t slots = std::uniform_int_distribution<>(1, 4)(random);
    const double rounds = static_cast<double>(space.survivors.size() / kRound + 1);
    const double slowest =
        absl::ToDoubleSeconds(kFirstFitLimit) / rounds / (static_cast<double>(kRound) / static_cast<double>(slots) + 1);
    bool any_fits = false;
    std::set<std::string> fitting;
    for (const Survivor& survivor : space.survivors) {
      if (std::bernoulli_distribution(share)(random)) fitting.insert(survivor.recipe.SerializeAsString());
    }
    SlowEstimator estimator(slots, [&](const v1::SimRequest& request) {
      Outcome outcome;
      outcome.takes = absl::Seconds(std::uniform_real_distribution<>(0, slowest)(random));
      outcome.fits = fitting.count(request.recipe().SerializeAsString()) > 0;
      outcome.fails = !outcome.fits && std::bernoulli_distribution(0.3)(random);
      outcome.step_seconds = std::uniform_real_distribution<>(0.5, 2)(random);
      any_fits = any_fits || outcome.fits;
      return outcome;
    });
    v1::PlanRequest request = Request();
    request.set_budget_seconds(std::pow(10, std::uniform_real_distribution<>(-4, 2)(random)));
    ASSERT_OK_AND_ASSIGN(const auto result, PlanOn(estimator, request));
    EXPECT_EQ(HasRecipe(result), !fitting.empty()) << "round " << round;
    EXPECT_EQ(HasRecipe(result), any_fits);
    EXPECT_EQ(estimator.under_way(), 0);
    ExpectInOrder(result);
  }
}

}  // namespace
}  // namespace legoai::planner
