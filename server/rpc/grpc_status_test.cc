#include "server/rpc/grpc_status.h"

#include <gtest/gtest.h>

#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "proto/errors.h"

namespace legoai::server {
namespace {

template <typename Detail>
std::optional<Detail> Find(const grpc::Status& status) {
  google::rpc::Status rpc;
  EXPECT_TRUE(rpc.ParseFromString(status.error_details()));
  for (const auto& any : rpc.details()) {
    Detail detail;
    if (any.UnpackTo(&detail)) return detail;
  }
  return std::nullopt;
}

TEST(GrpcStatus, AFieldErrorArrivesWhole) {
  const absl::Status error = FieldError("spec.recipe.training.seq_len", "0", "must lie between 1 and 1000");
  const grpc::Status sent = ToGrpcStatus(error);
  EXPECT_EQ(sent.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  const auto bad = Find<google::rpc::BadRequest>(sent);
  ASSERT_TRUE(bad);
  ASSERT_EQ(bad->field_violations_size(), 1);
  EXPECT_EQ(bad->field_violations(0).field(), "spec.recipe.training.seq_len");
  EXPECT_EQ(bad->field_violations(0).description(), "must lie between 1 and 1000");
  EXPECT_EQ(Find<google::rpc::ErrorInfo>(sent)->reason(), "INVALID_FIELD");
  EXPECT_EQ(Find<google::rpc::ErrorInfo>(sent)->domain(), "legoai.dev");
  EXPECT_FALSE(Find<google::rpc::RetryInfo>(sent));
  const absl::Status received = FromGrpcStatus(sent);
  EXPECT_EQ(received.code(), error.code());
  EXPECT_EQ(received.message(), error.message());
  ASSERT_TRUE(GetFieldViolation(received));
  EXPECT_EQ(GetFieldViolation(received)->SerializeAsString(), GetFieldViolation(error)->SerializeAsString());
}

TEST(GrpcStatus, EveryCodeComesBack) {
  for (int code = 0; code <= 16; ++code) {
    const absl::Status error(static_cast<absl::StatusCode>(code), "words");
    const absl::Status back = FromGrpcStatus(ToGrpcStatus(error));
    EXPECT_EQ(back.code(), error.code());
    EXPECT_EQ(back.message(), error.message());
  }
}

TEST(GrpcStatus, AFullServerSaysWhenToCallAgain) {
  const grpc::Status sent = ToGrpcStatus(BusyError("too many calls", absl::Milliseconds(2500)));
  EXPECT_EQ(sent.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(Find<google::rpc::RetryInfo>(sent)->retry_delay().seconds(), 2);
  EXPECT_EQ(*RetryDelay(FromGrpcStatus(sent)), absl::Milliseconds(2500));
  EXPECT_TRUE(RetryDelay(FromGrpcStatus(ToGrpcStatus(absl::ResourceExhaustedError("the disk is full")))));
  EXPECT_FALSE(RetryDelay(absl::NotFoundError("x")));
}

TEST(GrpcStatus, WithoutDetailsTheCodeCounts) {
  const absl::Status status = FromGrpcStatus(grpc::Status(grpc::StatusCode::UNAVAILABLE, "connection refused"));
  EXPECT_TRUE(absl::IsUnavailable(status));
  EXPECT_EQ(status.message(), "connection refused");
  EXPECT_TRUE(absl::IsInternal(FromGrpcStatus(grpc::Status(grpc::StatusCode::INTERNAL, "x", "no message of protobuf"))));
}

TEST(GrpcStatus, LongTextsAreCutBetweenCharacters) {
  std::string snow;
  for (int i = 0; i < 100000; ++i) snow += "\xE2\x98\x83";
  const grpc::Status sent = ToGrpcStatus(FieldError(snow, snow, snow));
  EXPECT_LT(sent.error_details().size() + 3 * sent.error_message().size(), 8192u);
  const absl::Status back = FromGrpcStatus(sent);
  EXPECT_EQ(back.message().size() % 3, 0u) << "three bytes a character, and three points";
}

}  // namespace
}  // namespace legoai::server
