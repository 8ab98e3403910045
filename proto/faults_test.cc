#include "proto/faults.h"

#include <gtest/gtest.h>

#include "proto/errors.h"

namespace legoai {
namespace {

TEST(AllFaults, OfNoneIsOkAndOfOneIsItself) {
  EXPECT_TRUE(AllFaults({}).ok());
  const absl::Status one = FieldError("a", "b", "c", absl::StatusCode::kNotFound);
  EXPECT_EQ(AllFaults({one}), one);
}

TEST(AllFaults, OfSeveralSaysEachOnALineAndCarriesTheFirst) {
  const absl::Status all = AllFaults({FieldError("a", "1", "c"), FieldError("d", "", "e", absl::StatusCode::kNotFound)});
  EXPECT_EQ(all.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(all.message(), "2 faults:\n  a = 1: c\n  d: e");
  ASSERT_TRUE(GetFieldViolation(all).has_value());
  EXPECT_EQ(GetFieldViolation(all)->field(), "a");
}

TEST(AllFaults, OfAsManyAsAreLookedForThereMayBeMore) {
  const std::vector<absl::Status> faults(kMostFaults, FieldError("a", "1", "c"));
  EXPECT_EQ(AllFaults(faults).message().substr(0, 31), "at least 50 faults:\n  a = 1: c\n");
}

}  // namespace
}  // namespace legoai
