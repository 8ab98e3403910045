#include "planner/plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <functional>
#include <map>
#include <random>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "core/hardware/catalog.h"
#include "core/model/catalog.h"
#include "core/recipe/legality.h"
#include "core/recipe/recipe.h"
#include "planner/legal.h"
#include "planner/plan_facts.h"
#include "planner/ranking.h"
#include "planner/schedule.h"
#include "planner/space.h"
#include "planner/testing/arithmetic_estimator.h"
#include "planner/testing/slow_estimator.h"
#include "proto/errors.h"
#include "proto/status.h"
#include "proto/testing/assert_ok.h"
#include "proto/testing/seeded_random.h"

namespace legoai::planner {
namespace {

using testing::ArithmeticEstimator;
using testing::Request;

int64_t Pruned(const v1::PlanResult& result) {
  int64_t sum = 0;
  for (const auto& [_, count] : result.pruned()) sum += count;
  return sum;
}

// What is shown while planning goes on becomes the ranking: in the same order, with the same numbers.
TEST(PlanTest, TheBestSoFarBecomeTheRanking) {
  for (const int64_t headroom : {0, 20}) {
    v1::PlanRequest request = Request();
    request.set_min_headroom_bytes(headroom);
    request.set_top(kBestSoFar);
    ArithmeticEstimator estimator;
    std::vector<PlanProgress> told;
    ASSERT_OK_AND_ASSIGN(const auto result, Plan(request, estimator, [&](const PlanProgress& at) { told.push_back(at); }));
    ASSERT_FALSE(told.empty());
    EXPECT_TRUE(told.front().best.empty()) << "nothing is simulated yet";
    size_t before = 0;
    for (const PlanProgress& at : told) {
      EXPECT_GE(at.best.size(), before) << "what fits goes on to fit";
      before = at.best.size();
      ASSERT_LE(at.best.size(), static_cast<size_t>(std::min(at.captured, kBestSoFar)));
      EXPECT_EQ(at.best.empty(), at.best_step_seconds == 0);
      for (size_t i = 0; i < at.best.size(); ++i) {
        EXPECT_EQ(at.best[i].rank(), static_cast<int64_t>(i + 1));
        EXPECT_EQ(at.best[i].recipe_toml(), "");
        EXPECT_FALSE(at.best[i].estimated());
        EXPECT_GE(at.best[i].step_time_seconds(), at.best_step_seconds);
      }
    }
    const auto& last = told.back().best;
    ASSERT_EQ(static_cast<int64_t>(last.size()), kBestSoFar);
    ASSERT_EQ(result.ranked_size(), kBestSoFar);
    for (int i = 0; i < kBestSoFar; ++i) {
      v1::RankedRecipe ranked = result.ranked(i);
      EXPECT_NE(ranked.recipe_toml(), "");
      ranked.clear_recipe_toml();
      EXPECT_EQ(last[i].SerializeAsString(), ranked.SerializeAsString()) << "rank " << i + 1;
    }
  }
}

v1::PlanRequest AutoRequest(double budget_gib) {
  v1::PlanRequest request = Request();
  request.mutable_base()->mutable_activation_checkpoint()->set_mode(v1::AC_AUTO);
  request.mutable_base()->mutable_activation_checkpoint()->set_memory_budget_gib(budget_gib);
  return request;
}

// Remembers what devices had for tensors.
class BudgetEstimator : public ArithmeticEstimator {
 public:
  absl::Status Start(const v1::SimRequest& request) override {
    usable.insert(UsableBytes(request.cluster()));
    modes.insert(request.recipe().activation_checkpoint().mode());
    return ArithmeticEstimator::Start(request);
  }
  std::set<int64_t> usable;
  std::set<v1::ActivationCheckpointMode> modes;
};

TEST(PlanWithPolicies, TheBudgetIsAllThatDevicesHaveForTensors) {
  const int64_t whole = UsableBytes(Request().cluster());
  for (const double gib : {0.0, 20.5, 1000.0}) {
    const int64_t budget = gib == 20.5 ? (int64_t{41} << 29) : whole;
    v1::PlanRequest in_base = AutoRequest(gib), constrained = Request();
    constrained.add_constraints("activation_checkpoint.mode=auto");
    constrained.add_constraints(absl::StrCat("activation_checkpoint.memory_budget_gib=", gib));
    std::vector<v1::PlanResult> results;
    for (const v1::PlanRequest& request : {in_base, constrained}) {
      BudgetEstimator estimator;
      ASSERT_OK_AND_ASSIGN(results.emplace_back(), Plan(request, estimator));
      EXPECT_EQ(estimator.usable, std::set<int64_t>{budget}) << gib;
      EXPECT_EQ(estimator.modes.count(v1::AC_AUTO), 0u);
      EXPECT_GT(estimator.modes.size(), 1u) << "recipes of every checkpointing";
      const v1::PlanResult& result = results.back();
      EXPECT_EQ(result.space(),
                Pruned(result) + result.bounded_out() + result.captured() + result.failed() + result.not_reached());
      for (const auto& ranked : result.ranked()) EXPECT_EQ(ranked.recipe().activation_checkpoint().memory_budget_gib(), 0);
    }
    EXPECT_EQ(results[0].explanation(), results[1].explanation());
  }
}

TEST(PlanWithPolicies, OtherConstraintsOfCheckpointingWinOverABaseOrAreRefused) {
  ArithmeticEstimator estimator;
  v1::PlanRequest request = AutoRequest(20);
  request.add_constraints("activation_checkpoint.mode=none");
  ASSERT_OK_AND_ASSIGN(const auto result, Plan(request, estimator));
  for (const auto& ranked : result.ranked()) EXPECT_EQ(ranked.recipe().activation_checkpoint().mode(), v1::AC_NONE);
  request = AutoRequest(20);
  request.add_constraints("activation_checkpoint.selective_ac_option=op");
  EXPECT_EQ(GetFieldViolation(Plan(request, estimator).status())->field(), "activation_checkpoint.selective_ac_option");
  request = AutoRequest(20);
  request.set_objective(v1::MEMORY);
  EXPECT_EQ(GetFieldViolation(Plan(request, estimator).status())->field(), "objective");
  EXPECT_EQ(GetFieldViolation(Plan(AutoRequest(-1), estimator).status())->field(), "activation_checkpoint.memory_budget_gib");
}

TEST(Plan, EveryCandidateEndsInOneCount) {
  ArithmeticEstimator estimator;
  ASSERT_OK_AND_ASSIGN(auto result, Plan(Request(), estimator));
  EXPECT_GT(result.captured_unfit(), 0);
  EXPECT_GT(result.failed(), 0);
  EXPECT_EQ(result.not_reached(), 0);
  EXPECT_EQ(result.captured() + result.failed(), estimator.total);
  EXPECT_EQ(result.space(), Pruned(result) + result.bounded_out() + result.captured() + result.failed() + result.not_reached());
}

// The estimator gives one stage, whatever the recipe has.
TEST(Plan, SaysWhereOneStageStandsForAll) {
  ArithmeticEstimator estimator;
  v1::PlanRequest request = Request();
  request.set_all_rejected(true);
  ASSERT_OK_AND_ASSIGN(auto result, Plan(request, estimator));
  int64_t alone = 0;
  for (const auto& rejected : result.rejected()) {
    if (!absl::StartsWith(rejected.reason(), "stage ")) continue;
    const bool has_others = rejected.recipe().parallelism().pipeline_parallel_degree() > 1;
    EXPECT_EQ(rejected.is_bound(), has_others) << rejected.reason();
    EXPECT_EQ(absl::StartsWith(rejected.reason(), "stage 0 alone needs 160"), has_others) << rejected.reason();
    alone += has_others;
  }
  EXPECT_GT(alone, 0);
}

TEST(Plan, RanksWhatFitsByStepTime) {
  ArithmeticEstimator estimator;
  v1::PlanRequest request = Request();
  request.set_top(10'000);
  ASSERT_OK_AND_ASSIGN(auto result, Plan(request, estimator));
  ASSERT_EQ(result.ranked_size(), result.captured() - result.captured_unfit());
  for (int i = 0; i < result.ranked_size(); ++i) {
    const auto& ranked = result.ranked(i);
    EXPECT_EQ(ranked.rank(), i + 1);
    EXPECT_EQ(ranked.headroom_bytes(), 40);
    EXPECT_NE(ranked.recipe().parallelism().pipeline_parallel_schedule(), v1::GPIPE);
    // All leave the same, so near ties are by time too.
    EXPECT_GE(ranked.step_time_seconds(), result.ranked(std::max(i - 1, 0)).step_time_seconds());
    EXPECT_EQ(ranked.recipe_toml().find("tokenizer_path"), std::string::npos) << "there is no text that it would be for";
    ASSERT_OK_AND_ASSIGN(auto read, parallel::ParseRecipe(ranked.recipe_toml()));
    EXPECT_EQ(read.SerializeAsString(), ranked.recipe().SerializeAsString());
  }
}

TEST(Plan, SaysThatTimesAreNotCalibrated) {
  ArithmeticEstimator estimator;
  v1::PlanRequest request = Request();
  EXPECT_NE(Plan(request, estimator)->explanation().find("assumes for h100-sxm-80, not calibrated"), std::string::npos);
  for (auto& efficiency : *request.mutable_cluster()->mutable_device()->mutable_efficiencies()) efficiency.set_source("measured");
  EXPECT_EQ(Plan(request, estimator)->explanation().find("calibrated"), std::string::npos);
}

TEST(Plan, AnEndedBudgetCountsWhatItDidNotReach) {
  ArithmeticEstimator estimator;
  v1::PlanRequest request = Request();
  request.set_budget_seconds(1e-9);
  ASSERT_OK_AND_ASSIGN(auto result, Plan(request, estimator));
  EXPECT_GT(result.captured(), result.captured_unfit());
  EXPECT_GT(result.not_reached(), 0);
  EXPECT_EQ(result.space(), Pruned(result) + result.bounded_out() + result.captured() + result.failed() + result.not_reached());
}

TEST(Plan, CanBeCancelled) {
  ArithmeticEstimator estimator;
  int asked = 0;
  auto result = Plan(Request(), estimator, {}, [&] { return ++asked > 5; });
  EXPECT_EQ(result.status().code(), absl::StatusCode::kCancelled);
}

// All recipes take the same time; answers come in the order of starting or in the reverse of it.
class EqualEstimator : public Estimator {
 public:
  explicit EqualEstimator(bool reverse) : reverse_(reverse) {}
  int64_t Slots() const override { return 4; }
  absl::Status Start(const v1::SimRequest& request) override {
    started_.push_back(request);
    return absl::OkStatus();
  }
  absl::StatusOr<std::optional<v1::SimResponse>> Wait(absl::Duration) override {
    if (started_.empty()) return std::optional<v1::SimResponse>();
    const v1::SimRequest request = reverse_ ? started_.back() : started_.front();
    reverse_ ? started_.pop_back() : started_.pop_front();
    v1::SimResponse response;
    response.set_id(request.id());
    if (request.recipe().parallelism().pipeline_parallel_schedule() == v1::GPIPE) {
      response.mutable_error()->set_message("no");
      return std::optional<v1::SimResponse>(response);
    }
    auto* estimate = response.mutable_estimate();
    *estimate->mutable_recipe() = request.recipe();
    estimate->set_fits(request.recipe().activation_checkpoint().mode() == v1::AC_FULL);
    estimate->set_step_time_seconds(2);
    estimate->add_stages()->set_capacity_bytes(request.recipe().parallelism().tensor_parallel_degree() * 10);
    return std::optional<v1::SimResponse>(response);
  }
  void StopAll() override { started_.clear(); }

 private:
  const bool reverse_;
  std::deque<v1::SimRequest> started_;
};

TEST(Plan, TheOrderOfAnswersDecidesNothing) {
  v1::PlanRequest request = Request();
  request.set_top(10000);
  request.set_all_rejected(true);
  EqualEstimator forward(false), backward(true);
  auto a = Plan(request, forward), b = Plan(request, backward);
  ASSERT_TRUE(a.ok() && b.ok());
  a->set_seconds(0), b->set_seconds(0);
  ASSERT_GT(a->ranked_size(), 10);
  EXPECT_EQ(a->DebugString(), b->DebugString());
  for (int i = 1; i < a->ranked_size(); ++i) {
    EXPECT_LE(a->ranked(i).headroom_bytes(), a->ranked(i - 1).headroom_bytes());
  }
}

// All fit; keeps what it was asked, in this order.
class RecordingEstimator : public Estimator {
 public:
  int64_t Slots() const override { return 1; }
  absl::Status Start(const v1::SimRequest& request) override {
    recipes.push_back(request.recipe());
    id_ = request.id();
    return absl::OkStatus();
  }
  absl::StatusOr<std::optional<v1::SimResponse>> Wait(absl::Duration) override {
    v1::SimResponse response;
    response.set_id(id_);
    auto* estimate = response.mutable_estimate();
    *estimate->mutable_recipe() = recipes.back();
    estimate->set_fits(true);
    estimate->set_step_time_seconds(static_cast<double>(recipes.size()));
    estimate->add_stages()->set_capacity_bytes(10);
    return std::optional<v1::SimResponse>(response);
  }
  void StopAll() override {}
  std::vector<v1::Recipe> recipes;

 private:
  int64_t id_ = 0;
};

TEST(Plan, ABudgetSimulatesACountAndAnAlternativeForEachChoice) {
  RecordingEstimator estimator;
  v1::PlanRequest request = Request();
  request.set_budget_seconds(600);
  ASSERT_OK_AND_ASSIGN(const auto result, Plan(request, estimator));
  ASSERT_OK_AND_ASSIGN(const auto space, PruneSpace(request));
  ASSERT_GT(space.survivors.size(), static_cast<size_t>(kSimulations));
  EXPECT_EQ(estimator.recipes.size(), static_cast<size_t>(kSimulations));
  EXPECT_EQ(result.captured(), kSimulations);
  EXPECT_EQ(result.not_reached(), static_cast<int64_t>(space.survivors.size()) - kSimulations);
  EXPECT_EQ(result.explanation().find("early"), std::string::npos) << result.explanation();
  std::string asked;  // "Another tensor parallel degree or number of stages", one after the other
  for (const absl::string_view line : absl::StrSplit(result.explanation(), '\n')) {
    if (absl::StartsWith(line, "- Another ")) absl::StrAppend(&asked, line.substr(0, line.find(':')));
  }
  for (const Choice& choice : kChoices) {
    std::set<int64_t> possible, simulated;
    for (const Survivor& survivor : space.survivors) possible.insert(choice.value(survivor.recipe));
    for (const v1::Recipe& recipe : estimator.recipes) simulated.insert(choice.value(recipe));
    if (possible.size() < 2) continue;
    EXPECT_GE(simulated.size(), 2u) << choice.name;
    EXPECT_NE(asked.find(choice.name), std::string::npos) << result.explanation();
  }
  EXPECT_EQ(result.explanation().find("none was simulated"), std::string::npos) << result.explanation();
}

// Half of a step is exposed with gathers one layer ahead, a quarter with two, for which each device needs more.
class ExposingEstimator : public RecordingEstimator {
 public:
  absl::StatusOr<std::optional<v1::SimResponse>> Wait(absl::Duration duration) override {
    ASSIGN_OR_RETURN(auto response, RecordingEstimator::Wait(duration));
    auto* estimate = response->mutable_estimate();
    const v1::Parallelism& p = estimate->recipe().parallelism();
    const bool ahead = p.fsdp_prefetch_depth() == 2;
    estimate->set_step_time_seconds(ahead ? 3 : 4);
    estimate->mutable_breakdown()->set_exposed_communication_seconds(ahead ? 1 : 2);
    estimate->mutable_stages(0)->set_peak_allocated_bytes(ahead ? 5 : 4);
    return response;
  }
};

TEST(Plan, TheBestAreTriedWithGathersFurtherAhead) {
  v1::PlanRequest request = Request();
  request.set_budget_seconds(600);
  request.add_constraints("parallelism.data_parallel_shard_degree=4");
  request.add_constraints("parallelism.zero_stage=3");
  const auto simulated = std::min<int64_t>(kSimulations, static_cast<int64_t>(PruneSpace(request)->survivors.size()));
  const auto depths = [&](const v1::PlanRequest& of) {
    ExposingEstimator estimator;
    const auto result = Plan(of, estimator);
    EXPECT_TRUE(result.ok()) << result.status();
    std::map<int64_t, int64_t> counts;
    for (const v1::Recipe& recipe : estimator.recipes) ++counts[recipe.parallelism().fsdp_prefetch_depth()];
    EXPECT_EQ(result->captured(), static_cast<int64_t>(estimator.recipes.size()));
    EXPECT_EQ(result->space(), Pruned(*result) + result->bounded_out() + result->captured() + result->not_reached());
    EXPECT_EQ(result->ranked(0).recipe().parallelism().fsdp_prefetch_depth(), counts.rbegin()->first);
    EXPECT_FALSE(result->stopped_early());
    return counts;
  };
  EXPECT_EQ(depths(request), (std::map<int64_t, int64_t>{{1, simulated}, {2, 4}}));
  v1::PlanRequest asked = request;
  asked.add_constraints("parallelism.fsdp_prefetch_depth=1");
  EXPECT_EQ(depths(asked), (std::map<int64_t, int64_t>{{1, simulated}}));
  asked = request;
  asked.mutable_base()->mutable_parallelism()->set_fsdp_prefetch_depth(3);
  EXPECT_EQ(depths(asked), (std::map<int64_t, int64_t>{{3, simulated}}));
  request.set_constraints(0, "parallelism.data_parallel_shard_degree=1");
  EXPECT_EQ(depths(request).count(2), 0u) << "nothing is gathered";
}

TEST(Plan, WithoutABudgetAllAreSimulated) {
  RecordingEstimator estimator;
  ASSERT_OK_AND_ASSIGN(const auto result, Plan(Request(), estimator));
  EXPECT_EQ(estimator.recipes.size(), PruneSpace(Request())->survivors.size());
  EXPECT_EQ(result.not_reached(), 0);
}

// Outcomes of all that may fit, drawn; `error`: by which factor times are off their estimates at most, either way.
std::map<std::string, testing::Outcome> DrawOutcomes(const LegalSpace& space, double fitting, double error,
                                                     std::mt19937_64& random) {
  std::map<std::string, testing::Outcome> outcomes;
  for (const Survivor& survivor : space.survivors) {
    testing::Outcome& outcome = outcomes[survivor.recipe.SerializeAsString()];
    outcome.fits = std::bernoulli_distribution(fitting)(random);
    outcome.step_seconds = survivor.roofline.step_seconds * std::uniform_real_distribution<>(1 / error, error)(random);
    outcome.peak_bytes = std::uniform_int_distribution<int64_t>(1, 100)(random);
  }
  return outcomes;
}

// The time of what does not fit may be left out where the request says so: not a word of the plan is another one.
TEST(Plan, NeedsNoTimeOfWhatDoesNotFitAndIsSlow) {
  SeededRandom random;
  v1::PlanRequest request = Request();
  request.set_budget_seconds(1e9);
  request.set_all_rejected(true);
  ASSERT_OK_AND_ASSIGN(const auto space, PruneSpace(request));
  int64_t left_out = 0;
  for (const v1::Objective objective : {v1::STEP_TIME, v1::MEMORY}) {
    request.set_objective(objective);
    for (int round = 0; round < 8; ++round) {
      const auto outcomes = DrawOutcomes(space, 0.5, 1.2, random);
      std::set<std::string> plans;
      for (const bool leaves_out : {false, true}) {
        testing::SlowEstimator estimator(2, [&](const v1::SimRequest& sim) {
          testing::Outcome outcome = outcomes.at(sim.recipe().SerializeAsString());
          const double below = sim.unfit_time_below_seconds();
          if (!leaves_out || outcome.fits || below == 0 || outcome.step_seconds < below) return outcome;
          outcome.step_seconds = 0;
          ++left_out;
          return outcome;
        });
        ASSERT_OK_AND_ASSIGN(auto plan, Plan(request, estimator, {}, {}, [&] { return estimator.Now(); }));
        plan.set_seconds(0);
        plans.insert(plan.DebugString());
      }
      EXPECT_EQ(plans.size(), 1u) << "round " << round;
    }
  }
  EXPECT_GT(left_out, 0);
}

// Where the closed forms are off by no more than what lies between the first and the first that is not simulated, the winner is
// that of simulating all.
TEST(Plan, FindsTheWinnerOfAllWhereEstimatesAreNearEnough) {
  SeededRandom random;
  v1::PlanRequest request = Request();
  ASSERT_OK_AND_ASSIGN(const auto space, PruneSpace(request));
  ASSERT_GT(space.survivors.size(), static_cast<size_t>(kSimulations));
  const size_t surely = kSimulations - 2 * kChoiceCount;  // others than the fastest stand for choices
  const double leeway = space.survivors[surely].roofline.step_seconds / space.survivors[0].roofline.step_seconds;
  ASSERT_GT(leeway, 1 + 2 * kNearTie);
  for (int round = 0; round < 8; ++round) {
    const auto outcomes = DrawOutcomes(space, 1, std::sqrt(leeway / (1 + 2 * kNearTie)), random);
    std::set<std::string> winners;
    for (const double budget : {0.0, 1e9}) {
      request.set_budget_seconds(budget);
      const auto outcome_of = [&](const v1::SimRequest& sim) { return outcomes.at(sim.recipe().SerializeAsString()); };
      testing::SlowEstimator estimator(2, outcome_of);
      ASSERT_OK_AND_ASSIGN(const auto plan, Plan(request, estimator, {}, {}, [&] { return estimator.Now(); }));
      winners.insert(plan.ranked(0).recipe_toml());
    }
    EXPECT_EQ(winners.size(), 1u) << "round " << round;
  }
}

// A machine under any load: random times, so that answers come in any order, and any number of simulators. Recipes fit, do not or
// fail, and take a time near their estimate, as chance has it for each of them once.
TEST(Plan, IsTheSameUnderAnyLoad) {
  SeededRandom random;
  v1::PlanRequest request = Request();
  request.set_top(10000);
  request.set_all_rejected(true);
  ASSERT_OK_AND_ASSIGN(const auto space, PruneSpace(request));
  for (int round = 0; round < 8; ++round) {
    const bool rare = round % 4 == 2;  // then it goes on beyond the count
    const double fitting = rare ? 0.01 : std::uniform_real_distribution<>(0.1, 1)(random);
    std::map<std::string, testing::Outcome> outcomes;
    for (const Survivor& survivor : space.survivors) {
      testing::Outcome outcome;
      outcome.fits = std::bernoulli_distribution(fitting)(random);
      outcome.fails = std::bernoulli_distribution(0.05)(random);
      outcome.step_seconds = survivor.roofline.step_seconds * std::uniform_real_distribution<>(0.8, 1.2)(random);
      outcome.peak_bytes = std::uniform_int_distribution<int64_t>(1, 100)(random);
      outcomes[survivor.recipe.SerializeAsString()] = outcome;
    }
    request.set_budget_seconds(round % 2 == 0 ? 1e9 : 0);
    std::set<std::string> plans;
    for (const int64_t slots : {1, 2, 8, 2}) {
      testing::SlowEstimator estimator(slots, [&](const v1::SimRequest& sim) {
        testing::Outcome outcome = outcomes.at(sim.recipe().SerializeAsString());
        outcome.takes = absl::Seconds(std::exponential_distribution<>(1)(random));
        return outcome;
      });
      ASSERT_OK_AND_ASSIGN(auto plan, Plan(request, estimator, {}, {}, [&] { return estimator.Now(); }));
      if (!rare) {
        EXPECT_EQ(plan.not_reached() > 0, request.budget_seconds() > 0);
      }
      plan.set_seconds(0);
      plans.insert(plan.DebugString());
    }
    EXPECT_EQ(plans.size(), 1u) << "round " << round;
  }
}

// Never answers.
class SilentEstimator : public Estimator {
 public:
  int64_t Slots() const override { return 2; }
  absl::Status Start(const v1::SimRequest&) override {
    ++under_way;
    return absl::OkStatus();
  }
  absl::StatusOr<std::optional<v1::SimResponse>> Wait(absl::Duration timeout) override {
    absl::SleepFor(timeout);
    return std::optional<v1::SimResponse>();
  }
  void StopAll() override { under_way = 0; }
  int under_way = 0;
};

// Answers all that is under way, once the budget is over: sleeps for so long that it is, whenever the first was started.
class LateEstimator : public SilentEstimator {
 public:
  explicit LateEstimator(absl::Duration over) : over_(over) {}
  absl::Status Start(const v1::SimRequest& request) override {
    started_.push_back(request);
    ++total;
    return SilentEstimator::Start(request);
  }
  absl::StatusOr<std::optional<v1::SimResponse>> Wait(absl::Duration) override {
    absl::SleepFor(std::exchange(over_, absl::ZeroDuration()));  // as if this process had been stopped meanwhile
    if (started_.empty()) return std::optional<v1::SimResponse>();
    v1::SimResponse response;
    response.set_id(started_.front().id());
    response.mutable_estimate()->set_fits(true);
    *response.mutable_estimate()->mutable_recipe() = started_.front().recipe();
    response.mutable_estimate()->add_stages();
    started_.pop_front();
    return std::optional<v1::SimResponse>(response);
  }
  int total = 0;

 private:
  absl::Duration over_;
  std::deque<v1::SimRequest> started_;
};

TEST(Plan, AnswersThatAreThereWhenTheTimeIsOverCount) {
  v1::PlanRequest request = Request();
  for (double budget = 0.5;; budget *= 4) {
    LateEstimator estimator(absl::Seconds(budget + 0.1) + kGrace);
    request.set_budget_seconds(budget);
    ASSERT_OK_AND_ASSIGN(auto result, Plan(request, estimator));
    if (estimator.total < estimator.Slots() && budget < 100) continue;  // a busy machine: over before all were started
    EXPECT_EQ(result.captured(), 2);
    EXPECT_GT(result.not_reached(), 0);
    break;
  }
}

TEST(Plan, CancellingIsPossibleWhileTheSpaceIsPruned) {
  int asked = 0;
  auto space = PruneSpace(Request(), [&] { return ++asked == 3; });
  EXPECT_EQ(space.status().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(asked, 3);
}

TEST(Plan, PruningEndsWithTheBudget) {
  int asked = 0;
  ASSERT_OK_AND_ASSIGN(const auto space, PruneSpace(Request(), {}, [&] { return ++asked > 100; }));
  EXPECT_EQ(space.undecided, space.size - 100);
  int64_t decided = space.bounded_out + static_cast<int64_t>(space.survivors.size());
  for (const auto& [_, count] : space.pruned) decided += count;
  EXPECT_EQ(decided, 100);
}

TEST(Plan, CancellingStopsWhatIsUnderWay) {
  SilentEstimator estimator;
  auto result = Plan(Request(), estimator, {}, [&] { return estimator.under_way > 0; });
  EXPECT_EQ(result.status().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(estimator.under_way, 0);
}

// Simulators are asked as if the device were smaller, the closed-form bound drops more, and the headroom shown has the room in.
TEST(Plan, HeadroomThatIsAskedForIsLeftFree) {
  struct RecordingEstimator : ArithmeticEstimator {
    absl::Status Start(const v1::SimRequest& request) override {
      reserves.insert(request.cluster().device().reserve_bytes());
      return ArithmeticEstimator::Start(request);
    }
    std::set<int64_t> reserves;
  } plain, roomy;
  v1::PlanRequest request = Request();
  const auto before = Plan(request, plain);
  constexpr int64_t kRoom = int64_t{70} << 30;
  request.set_min_headroom_bytes(kRoom);
  const auto after = Plan(request, roomy);
  ASSERT_TRUE(before.ok() && after.ok()) << before.status() << after.status();
  const int64_t reserve = request.cluster().device().reserve_bytes();
  EXPECT_EQ(plain.reserves, std::set<int64_t>{reserve});
  EXPECT_EQ(roomy.reserves, std::set<int64_t>{reserve + kRoom});
  EXPECT_GT(after->bounded_out(), before->bounded_out());
  ASSERT_GT(after->ranked_size(), 0);
  EXPECT_EQ(after->ranked(0).headroom_bytes(), 40 + kRoom) << "40 are left of what that simulator says";
  EXPECT_TRUE(absl::StrContains(after->explanation(), "70.0 GiB of each device are left free, as asked for"));
  EXPECT_FALSE(absl::StrContains(before->explanation(), "left free"));
}

TEST(Plan, RefusesNumbersThatCannotBe) {
  ArithmeticEstimator estimator;
  const auto refused = [&](const std::function<void(v1::PlanRequest&)>& change) -> std::string {
    v1::PlanRequest request = Request();
    change(request);
    const auto violation = GetFieldViolation(Plan(request, estimator).status());
    return violation ? violation->field() : "accepted";
  };
  EXPECT_EQ(refused([](auto& r) { r.set_global_batch(0); }), "global_batch");
  EXPECT_EQ(refused([](auto& r) { r.set_global_batch(INT64_MAX); }), "global_batch");
  EXPECT_EQ(refused([](auto& r) { r.set_seq_len(INT64_MAX); }), "seq_len");
  EXPECT_EQ(refused([](auto& r) { *r.mutable_model() = model::ResolveModel("mistral-7b-v0.1").value(), r.set_seq_len(8192); }),
            "training.seq_len");
  EXPECT_EQ(refused([](auto& r) { r.set_budget_seconds(std::nan("")); }), "budget_seconds");
  EXPECT_EQ(refused([](auto& r) { r.set_objective(static_cast<v1::Objective>(7)); }), "objective");
  EXPECT_EQ(refused([](auto& r) { r.set_min_headroom_bytes(-1); }), "min_headroom_bytes");
  EXPECT_EQ(refused([](auto& r) { r.set_min_headroom_bytes(r.cluster().device().memory_bytes()); }), "min_headroom_bytes");
  EXPECT_EQ(refused([](auto& r) { r.mutable_cluster()->mutable_device()->set_host_dispatch_seconds(std::nan("")); }),
            "device.host_dispatch_seconds");
}

}  // namespace
}  // namespace legoai::planner
