#include "worker/parallel/mixed_precision.h"

#include <gtest/gtest.h>

#include "proto/errors.h"

namespace legoai::parallel {
namespace {

TEST(MixedPrecision, DefaultsAreBf16WithFp32Reduction) {
  const auto precision = PrecisionOf({});
  ASSERT_TRUE(precision.ok());
  EXPECT_EQ(precision->param, c10::ScalarType::BFloat16);
  EXPECT_EQ(precision->reduce, c10::ScalarType::Float);
}

TEST(MixedPrecision, FollowsTheRecipe) {
  v1::Training training;
  training.set_mixed_precision_param(v1::FLOAT32);
  training.set_mixed_precision_reduce(v1::BFLOAT16);
  const auto precision = PrecisionOf(training);
  ASSERT_TRUE(precision.ok());
  EXPECT_EQ(precision->param, c10::ScalarType::Float);
  EXPECT_EQ(precision->reduce, c10::ScalarType::BFloat16);
}

TEST(MixedPrecision, RefusesOtherTypesByField) {
  v1::Training training;
  training.set_mixed_precision_param(v1::FLOAT16);
  const auto param = GetFieldViolation(PrecisionOf(training).status());
  ASSERT_TRUE(param.has_value());
  EXPECT_EQ(param->field(), "training.mixed_precision_param");
  training.set_mixed_precision_param(v1::FLOAT32);
  training.set_mixed_precision_reduce(v1::INT8);
  const auto reduce = GetFieldViolation(PrecisionOf(training).status());
  ASSERT_TRUE(reduce.has_value());
  EXPECT_EQ(reduce->field(), "training.mixed_precision_reduce");
}

}  // namespace
}  // namespace legoai::parallel
