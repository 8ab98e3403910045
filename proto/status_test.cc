#include "proto/status.h"

#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>

#include "proto/testing/assert_ok.h"

namespace legoai {
namespace {

absl::StatusOr<std::unique_ptr<int>> Make(int value) {
  if (value < 0) return absl::InvalidArgumentError("negative");
  return std::make_unique<int>(value);
}

absl::Status Check(int value) { return Make(value).status(); }

// Both in one function, on lines of their own and in a nested block; what cannot be copied is moved out.
absl::StatusOr<std::unique_ptr<int>> Twice(int first, int second) {
  RETURN_IF_ERROR(Check(first));
  ASSIGN_OR_RETURN(auto sum, Make(first));
  {
    ASSIGN_OR_RETURN(const auto other, Make(second));
    *sum += *other;
  }
  return sum;
}

TEST(StatusTest, ValuesAreTakenAndErrorsPassedOn) {
  ASSERT_TRUE(Twice(1, 2).ok());
  EXPECT_EQ(**Twice(1, 2), 3);
  EXPECT_EQ(Twice(-1, 2).status().message(), "negative");
  EXPECT_EQ(Twice(1, -2).status().message(), "negative");
}

// An expression with commas outside parentheses, and one that binds weaker than a call.
absl::StatusOr<int> Size(bool two) {
  ASSIGN_OR_RETURN(const auto made, two ? absl::StatusOr<std::map<int, int>>(std::map<int, int>{{1, 2}, {3, 4}})
                                        : absl::StatusOr<std::map<int, int>>(absl::NotFoundError("none")));
  return static_cast<int>(made.size());
}

TEST(StatusTest, TheExpressionMayHaveCommas) {
  EXPECT_EQ(*Size(true), 2);
  EXPECT_EQ(Size(false).status().code(), absl::StatusCode::kNotFound);
}

void Needs(int value) {
  ASSERT_OK_AND_ASSIGN(const auto made, Make(value));
  FAIL() << "has " << *made;
}

TEST(StatusTest, ATestHasTheValueOrEndsWithTheReason) {
  EXPECT_FATAL_FAILURE(Needs(3), "has 3");
  EXPECT_FATAL_FAILURE(Needs(-1), "negative");
}

// The expression is evaluated once.
TEST(StatusTest, OnceIsEnough) {
  int calls = 0;
  const auto run = [&]() -> absl::Status {
    const auto count = [&]() -> absl::Status {
      ++calls;
      return absl::OkStatus();
    };
    RETURN_IF_ERROR(count());
    return absl::OkStatus();
  };
  EXPECT_TRUE(run().ok());
  EXPECT_EQ(calls, 1);
}

}  // namespace
}  // namespace legoai
