// What a plan must keep to: constraints, rules of a model and a cluster, and the recipe that a job resumes with.
#include <gtest/gtest.h>

#include <string>

#include "core/recipe/recipe.h"
#include "planner/plan.h"
#include "planner/testing/arithmetic_estimator.h"
#include "proto/errors.h"
#include "proto/testing/assert_ok.h"

namespace legoai::planner {
namespace {

using testing::ArithmeticEstimator;
using testing::Request;

TEST(Plan, ConstraintsThatNoRecipeMeetsNameTheValuesThatThereAre) {
  ArithmeticEstimator estimator;
  v1::PlanRequest request = Request();
  request.add_constraints("parallelism.tensor_parallel_degree=3");
  request.add_constraints("training.local_batch_size=5");
  request.add_constraints("parallelism.pipeline_parallel_degree=1");
  ASSERT_OK_AND_ASSIGN(const auto result, Plan(request, estimator));
  EXPECT_EQ(result.pruned().at("constraint"), result.space());
  EXPECT_NE(result.explanation().find("none has parallelism.tensor_parallel_degree=3: use one of 1, 2, 4, 8; none has "
                                      "training.local_batch_size=5: use one of 1, 2, 4, 8, 16"),
            std::string::npos)
      << result.explanation();
  request = Request();
  request.add_constraints("parallelism.expert_parallel_degree=2");
  const auto violation = GetFieldViolation(Plan(request, estimator).status());
  ASSERT_TRUE(violation);
  EXPECT_EQ(violation->value(), "parallelism.expert_parallel_degree=2");
  EXPECT_NE(violation->remedy().find("not supported"), std::string::npos);
}

TEST(Plan, WhereNothingIsLegalTheRulesAreNamed) {
  ArithmeticEstimator estimator;
  v1::PlanRequest request = Request();
  *request.mutable_model() = model::ResolveModel("gpt2").value();
  ASSERT_OK_AND_ASSIGN(const auto result, Plan(request, estimator));
  EXPECT_NE(result.explanation().find("dropped by sequence_within_positions, for instance: training.seq_len = 2048: must be at "
                                      "most 1024"),
            std::string::npos)
      << result.explanation();
}

TEST(Plan, ConstraintsBindAndWrongOnesAreErrors) {
  ArithmeticEstimator estimator;
  v1::PlanRequest request = Request();
  request.add_constraints("parallelism.tensor_parallel_degree=2");
  ASSERT_OK_AND_ASSIGN(auto result, Plan(request, estimator));
  ASSERT_GT(result.ranked_size(), 0);
  for (const auto& ranked : result.ranked()) EXPECT_EQ(ranked.recipe().parallelism().tensor_parallel_degree(), 2);
  for (const char* wrong : {"parallelism.tensor_degree=2", "parallelism.tensor_parallel_degree=two", "tensor"}) {
    v1::PlanRequest bad = Request();
    bad.add_constraints(wrong);
    EXPECT_EQ(Plan(bad, estimator).status().code(), absl::StatusCode::kInvalidArgument) << wrong;
  }
}

// A request to go on with a job of the default recipe.
v1::PlanRequest Resumed() {
  v1::PlanRequest request = Request();
  *request.mutable_resume_from() = parallel::DefaultRecipe();
  request.mutable_resume_from()->mutable_training()->set_global_batch_size(16);
  request.mutable_resume_from()->mutable_training()->set_seq_len(2048);
  return request;
}

// The best recipe of `request`, which may not be planned with another value, `changed`, of what the old job says.
v1::Recipe BestThatKeeps(v1::PlanRequest request, const std::string& changed) {
  ArithmeticEstimator estimator;
  const auto result = Plan(request, estimator);
  EXPECT_TRUE(result.ok()) << result.status();
  request.add_constraints(changed);
  const absl::Status status = Plan(request, estimator).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  const auto violation = GetFieldViolation(status);
  EXPECT_TRUE(violation.has_value() && violation->field() == "--constraint") << status;
  return result.ok() ? result->ranked(0).recipe() : v1::Recipe();
}

TEST(Plan, AResumedJobKeepsBatchSequenceAndPrecision) {
  ArithmeticEstimator estimator;
  v1::PlanRequest request = Resumed();
  auto* old = request.mutable_resume_from()->mutable_training();
  old->set_mixed_precision_param(v1::FLOAT32);
  ASSERT_OK_AND_ASSIGN(auto result, Plan(request, estimator));
  ASSERT_GT(result.ranked_size(), 0);
  for (const auto& ranked : result.ranked()) EXPECT_EQ(ranked.recipe().training().mixed_precision_param(), v1::FLOAT32);
  old->set_global_batch_size(32);
  EXPECT_EQ(Plan(request, estimator).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(Plan, AResumedJobKeepsItsOptimizer) {
  v1::PlanRequest request = Resumed();
  request.mutable_resume_from()->mutable_optimizer()->set_lr(0.25);
  request.add_constraints("optimizer.lr=0.25");
  EXPECT_EQ(BestThatKeeps(request, "optimizer.lr=0.5").optimizer().lr(), 0.25);
}

TEST(Plan, AResumedJobKeepsWhatItsParametersAreHeldIn) {
  v1::PlanRequest request = Resumed();
  request.mutable_resume_from()->mutable_training()->set_dtype(v1::BFLOAT16);
  EXPECT_EQ(BestThatKeeps(request, "training.dtype=float32").training().dtype(), v1::BFLOAT16);
}

TEST(Plan, RanksToTraceForbidNoLayout) {
  ArithmeticEstimator estimator;
  v1::PlanRequest request = Request();
  const auto plain = Plan(request, estimator);
  request.mutable_base()->mutable_metrics()->add_trace_steps(1);
  request.mutable_base()->mutable_metrics()->add_trace_ranks(0);
  request.mutable_base()->mutable_metrics()->add_trace_ranks(100'000);
  const auto traced = Plan(request, estimator);
  ASSERT_TRUE(plain.ok() && traced.ok()) << traced.status();
  ASSERT_EQ(traced->ranked_size(), plain->ranked_size());
  EXPECT_EQ(traced->ranked(0).recipe().metrics().trace_ranks_size(), 1);
}

}  // namespace
}  // namespace legoai::planner
