// Recipes that a lower bound of the step time leaves out: what is ranked is the same as where all are simulated.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "planner/legal.h"
#include "planner/plan.h"
#include "planner/schedule.h"
#include "planner/testing/arithmetic_estimator.h"
#include "planner/testing/slow_estimator.h"
#include "proto/testing/assert_ok.h"
#include "proto/testing/seeded_random.h"

namespace legoai::planner {
namespace {

using testing::Outcome;
using testing::Request;

// The lower bound and something on top, each drawn from the recipe and the seed; a fifth does not fit.
std::function<Outcome(const v1::SimRequest&)> AboveTheBound(const v1::PlanRequest& request, uint64_t seed, double most_on_top) {
  return [=](const v1::SimRequest& sim) {
    std::mt19937_64 random(std::hash<std::string>()(sim.recipe().SerializeAsString()) ^ seed);
    const double on_top = std::uniform_real_distribution<double>(0, most_on_top)(random);
    const auto bound = BoundTime(request, sim.recipe());
    EXPECT_TRUE(bound.ok()) << bound.status();
    return Outcome{.takes = absl::Milliseconds(1), .fits = random() % 5 > 0, .step_seconds = *bound * (1 + on_top)};
  };
}

struct Made {
  v1::PlanResult result;
  int64_t simulations = 0;
};

Made Make(v1::PlanRequest request, double budget_seconds, uint64_t seed, double most_on_top) {
  request.set_budget_seconds(budget_seconds);
  testing::SlowEstimator estimator(2, AboveTheBound(request, seed, most_on_top));
  auto result = Plan(request, estimator, {}, {}, [&] { return estimator.Now(); });
  EXPECT_TRUE(result.ok()) << result.status();
  return {result.ok() ? *std::move(result) : v1::PlanResult(), estimator.started()};
}

std::vector<std::string> Ranking(const v1::PlanResult& result) {
  std::vector<std::string> ranking;
  for (const v1::RankedRecipe& ranked : result.ranked())
    ranking.push_back(ranked.recipe_toml() + "# " + std::to_string(ranked.step_time_seconds()));
  return ranking;
}

v1::PlanRequest RandomRequest(SeededRandom& random) {
  const auto pick = [&](std::initializer_list<const char*> choices) {
    return std::string(choices.begin()[random() % choices.size()]);
  };
  v1::PlanRequest request = Request();
  *request.mutable_cluster() =
      sim::ParseCluster(pick({"h100-sxm-80:8x1", "h100-sxm-80:4x1", "h100-sxm-80:2x2", "h100-sxm-80:2x1"})).value();
  request.set_global_batch(int64_t{4} << random() % 4);
  request.set_seq_len(int64_t{1024} << random() % 3);
  request.add_constraints("parallelism.pipeline_parallel_degree=" + pick({"1", "1", "2"}));
  if (random() % 2 == 0) request.add_constraints("parallelism.data_parallel_replicate_degree=1");
  if (random() % 2 == 0) request.add_constraints("parallelism.tensor_parallel_degree=" + pick({"1", "2"}));
  return request;
}

TEST(PlanBound, TheRankingIsThatOfAllSimulations) {
  SeededRandom random;
  constexpr int kSpaces = 40;
  int64_t tried = 0, all = 0, some = 0;
  for (int i = 0; i < 1000 && tried < kSpaces; ++i) {
    const v1::PlanRequest request = RandomRequest(random);
    ASSERT_OK_AND_ASSIGN(const auto space, PruneSpace(request));
    const auto survivors = static_cast<int64_t>(space.survivors.size());
    if (survivors <= 2 * kDefaultTop || survivors > kSimulations) continue;  // of more not all are simulated in any case
    ++tried;
    const uint64_t seed = random();
    const double most_on_top = i % 2 == 0 ? 0.1 : 0.5;
    const Made exhaustive = Make(request, 0, seed, most_on_top), bounded = Make(request, 1000, seed, most_on_top);
    ASSERT_EQ(Ranking(exhaustive.result), Ranking(bounded.result)) << request.DebugString();
    EXPECT_FALSE(bounded.result.stopped_early());
    all += exhaustive.simulations, some += bounded.simulations;
    int64_t pruned = 0;
    for (const auto& [rule, count] : bounded.result.pruned()) pruned += count;
    EXPECT_EQ(bounded.result.space(), pruned + bounded.result.bounded_out() + bounded.result.captured() +
                                          bounded.result.failed() + bounded.result.not_reached());
    const bool is_said = bounded.result.explanation().find("a lower bound of the step time is above theirs") != std::string::npos;
    if (bounded.simulations < exhaustive.simulations) {
      EXPECT_TRUE(is_said) << bounded.result.explanation();
    }
  }
  std::printf("%ld spaces: %ld simulations of all, %ld of those that the bound leaves\n", static_cast<long>(tried),
              static_cast<long>(all), static_cast<long>(some));
  EXPECT_EQ(tried, kSpaces);
  EXPECT_LT(some, all);
}

}  // namespace
}  // namespace legoai::planner
