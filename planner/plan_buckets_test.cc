// Plans that are to decide how FSDP's collectives are joined: compile.fsdp_bucketing = "auto".
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <string>

#include "planner/plan.h"
#include "planner/testing/arithmetic_estimator.h"
#include "proto/errors.h"
#include "proto/testing/assert_ok.h"

namespace legoai::planner {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using testing::Request;

// What a recipe takes depends on its collectives; a plan of buckets becomes two of them, as lego-sim gives it.
class BucketEstimator : public Estimator {
 public:
  explicit BucketEstimator(double planned_seconds) : seconds_({{v1::BUCKET_BY_BLOCK, 5}, {v1::BUCKET_NOTHING, 7}}) {
    seconds_[v1::BUCKET_BY_PLAN] = planned_seconds;
  }
  int64_t Slots() const override { return 2; }
  absl::Status Start(const v1::SimRequest& request) override {
    started_.push_back(request);
    ++counts[request.recipe().compile().fsdp_bucketing()];
    return absl::OkStatus();
  }
  absl::StatusOr<std::optional<v1::SimResponse>> Wait(absl::Duration) override {
    if (started_.empty()) return std::optional<v1::SimResponse>();
    v1::SimResponse response;
    response.set_id(started_.front().id());
    v1::Estimate* const estimate = response.mutable_estimate();
    v1::Recipe* const recipe = estimate->mutable_recipe();
    *recipe = started_.front().recipe();
    started_.pop_front();
    const double degree = static_cast<double>(recipe->parallelism().tensor_parallel_degree());
    const double seconds = seconds_.at(recipe->compile().fsdp_bucketing());
    estimate->set_fits(true);
    estimate->set_step_time_seconds(seconds + degree);
    estimate->mutable_breakdown()->set_compute_seconds(1 + degree);
    estimate->mutable_breakdown()->set_exposed_communication_seconds(seconds - 1);
    estimate->add_stages()->set_capacity_bytes(100);
    if (recipe->compile().fsdp_bucketing() == v1::BUCKET_BY_PLAN) {
      recipe->mutable_compile()->set_fsdp_bucketing(v1::BUCKET_BY_MODULES);
      recipe->mutable_compile()->add_fsdp_buckets()->add_modules("layers.0");
      recipe->mutable_compile()->add_fsdp_buckets()->add_modules("layers.1");
      if (is_apart) recipe->mutable_compile()->add_fsdp_backward_buckets()->add_modules("layers.*");
    }
    return std::optional<v1::SimResponse>(response);
  }
  void StopAll() override { started_.clear(); }
  std::map<v1::FsdpBucketing, int64_t> counts;
  bool is_apart = false;  // the plan has other buckets in backward

 private:
  std::map<v1::FsdpBucketing, double> seconds_;
  std::deque<v1::SimRequest> started_;
};

v1::PlanRequest WithAuto() {
  v1::PlanRequest request = Request();
  request.mutable_base()->mutable_compile()->set_enable(true);
  request.mutable_base()->mutable_compile()->set_fsdp_bucketing(v1::BUCKET_BY_PLAN);
  request.set_top(1000);
  request.set_budget_seconds(60);
  return request;
}

TEST(PlannedBuckets, WinWhereTheyAreFasterAndArePartOfTheRecipe) {
  BucketEstimator estimator(3);
  ASSERT_OK_AND_ASSIGN(const auto result, Plan(WithAuto(), estimator));
  EXPECT_EQ(estimator.counts[v1::BUCKET_BY_PLAN], 4);
  EXPECT_EQ(estimator.counts[v1::BUCKET_NOTHING], 4);
  EXPECT_GE(estimator.counts[v1::BUCKET_BY_BLOCK], 8);
  const v1::CompileSection& compile = result.ranked(0).recipe().compile();
  EXPECT_EQ(compile.fsdp_bucketing(), v1::BUCKET_BY_MODULES);
  EXPECT_EQ(compile.fsdp_buckets_size(), 2);
  EXPECT_THAT(result.ranked(0).recipe_toml(), HasSubstr("fsdp_buckets"));
  EXPECT_THAT(result.explanation(), HasSubstr("FSDP's collectives: in planned buckets 4 s a step with 2 s of exposed"));
  EXPECT_THAT(result.explanation(), HasSubstr("by block 6 s a step with 4 s"));
  EXPECT_THAT(result.explanation(), HasSubstr("of each parameter alone 8 s a step with 6 s"));
  int64_t pruned = 0;
  for (const auto& [rule, count] : result.pruned()) pruned += count;
  EXPECT_EQ(result.space(), pruned + result.bounded_out() + result.captured() + result.failed() + result.not_reached());
}

TEST(PlannedBuckets, OfABackwardAreToldWhereTheyAreOthers) {
  BucketEstimator estimator(3);
  estimator.is_apart = true;
  ASSERT_OK_AND_ASSIGN(const auto result, Plan(WithAuto(), estimator));
  EXPECT_THAT(result.ranked(0).recipe_toml(), HasSubstr("fsdp_backward_buckets"));
  EXPECT_THAT(result.explanation(), HasSubstr("in planned buckets, others in backward than in forward, 4 s a step"));
  EXPECT_THAT(result.explanation(), HasSubstr("collectives in buckets of modules, others in backward"));
}

TEST(PlannedBuckets, AreNotTakenWhereTheyBuyNothing) {
  BucketEstimator estimator(5.5);
  ASSERT_OK_AND_ASSIGN(const auto result, Plan(WithAuto(), estimator));
  EXPECT_EQ(result.ranked(0).recipe().compile().fsdp_bucketing(), v1::BUCKET_BY_BLOCK);
  EXPECT_THAT(result.explanation(), HasSubstr("in planned buckets 6.5 s"));
}

TEST(PlannedBuckets, AreAskedForByAConstraintToo) {
  v1::PlanRequest request = Request();
  request.add_constraints("compile.enable=true");
  request.add_constraints("compile.fsdp_bucketing=auto");
  request.set_budget_seconds(60);
  BucketEstimator estimator(3);
  ASSERT_OK_AND_ASSIGN(const auto result, Plan(request, estimator));
  EXPECT_EQ(result.ranked(0).recipe().compile().fsdp_bucketing(), v1::BUCKET_BY_MODULES);
}

TEST(PlannedBuckets, NeedAProgram) {
  v1::PlanRequest request = WithAuto();
  request.mutable_base()->mutable_compile()->set_enable(false);
  BucketEstimator estimator(3);
  const auto fault = GetFieldViolation(Plan(request, estimator).status());
  ASSERT_TRUE(fault.has_value());
  EXPECT_EQ(fault->field(), "compile.fsdp_bucketing");
  EXPECT_THAT(fault->remedy(), HasSubstr("compile.enable = true"));
}

TEST(PlannedBuckets, AreNotWithoutBeingAskedFor) {
  v1::PlanRequest request = Request();
  request.set_budget_seconds(60);
  BucketEstimator estimator(1);
  ASSERT_OK_AND_ASSIGN(const auto result, Plan(request, estimator));
  EXPECT_EQ(estimator.counts.size(), 1u);
  EXPECT_THAT(result.explanation(), Not(HasSubstr("FSDP's collectives")));
}

}  // namespace
}  // namespace legoai::planner
