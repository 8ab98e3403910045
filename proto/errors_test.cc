#include "proto/errors.h"

#include <gtest/gtest.h>

namespace legoai {
namespace {

TEST(FieldError, CarriesTheFieldAsTextAndAsData) {
  const absl::Status status = FieldError("training.seq_len", "8192", "must be at most 1024");
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(), "training.seq_len = 8192: must be at most 1024");
  const auto violation = GetFieldViolation(status);
  ASSERT_TRUE(violation.has_value());
  EXPECT_EQ(violation->field(), "training.seq_len");
  EXPECT_EQ(violation->value(), "8192");
  EXPECT_EQ(violation->remedy(), "must be at most 1024");
}

TEST(FieldError, WithoutValueSaysNoEqualsSign) {
  EXPECT_EQ(FieldError("model.name", "", "is needed").message(), "model.name: is needed");
}

TEST(FieldError, ShowsQuestionMarksForWhatIsNoText) {
  const absl::Status status = FieldError("model.name", "caf\xc3\xa9 \xff", "no such file");
  EXPECT_EQ(status.message(), "model.name = caf?? ?: no such file");
  ASSERT_TRUE(GetFieldViolation(status).has_value());
  EXPECT_EQ(GetFieldViolation(status)->value(), "caf?? ?");
  EXPECT_EQ(GetFieldViolation(FieldError("model.name", "caf\xc3\xa9", "no such file"))->value(), "caf\xc3\xa9");
}

TEST(FieldError, EscapesControlCharacters) {
  const absl::Status status = FieldError("a\x1b", std::string_view("b\0\n", 3), "first line\nsecond\x7f");
  EXPECT_EQ(status.message(), "a\\u001b = b\\u0000\\n: first line\nsecond\\u007f");
  EXPECT_EQ(GetFieldViolation(status)->value(), "b\\u0000\\n");
  EXPECT_EQ(Annotate(status, "x\r").message().substr(0, 5), "x\\r: ");
}

TEST(FieldError, IsNeverOk) {
  EXPECT_FALSE(FieldError("a", "b", "c", absl::StatusCode::kOk).ok());
  EXPECT_EQ(FieldError("a", "b", "c", absl::StatusCode::kNotFound).code(), absl::StatusCode::kNotFound);
}

TEST(GetFieldViolation, NothingInOtherStatuses) {
  EXPECT_FALSE(GetFieldViolation(absl::OkStatus()).has_value());
  EXPECT_FALSE(GetFieldViolation(absl::InternalError("x")).has_value());
}

TEST(Annotate, KeepsCodeAndViolation) {
  const absl::Status status = Annotate(FieldError("a", "b", "c", absl::StatusCode::kNotFound), "job.toml");
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(status.message(), "job.toml: a = b: c");
  EXPECT_EQ(GetFieldViolation(status)->field(), "a");
  EXPECT_TRUE(Annotate(absl::OkStatus(), "x").ok());
}

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
