#include "proto/rpc.h"

#include <gtest/gtest.h>

#include "proto/errors.h"

namespace legoai {
namespace {

TEST(RpcStatusTest, AFieldErrorCrossesAsData) {
  const absl::Status status = FieldError("training.seq_len", "0", "give at least 1", absl::StatusCode::kOutOfRange);
  const google::rpc::Status rpc = ToRpcStatus(status);
  EXPECT_EQ(rpc.code(), 11) << "OUT_OF_RANGE";
  EXPECT_EQ(rpc.message(), "training.seq_len = 0: give at least 1");
  ASSERT_EQ(rpc.details_size(), 1);
  v1::FieldViolation violation;
  ASSERT_TRUE(rpc.details(0).UnpackTo(&violation)) << rpc.details(0).type_url();
  EXPECT_EQ(violation.field(), "training.seq_len");

  google::rpc::Status received;
  ASSERT_TRUE(received.ParseFromString(rpc.SerializeAsString()));
  EXPECT_EQ(FromRpcStatus(received), status);
  EXPECT_EQ(GetFieldViolation(FromRpcStatus(received))->remedy(), "give at least 1");
}

TEST(RpcStatusTest, EveryCodeCrosses) {
  for (int code = 0; code <= 16; ++code) {
    const absl::Status status(static_cast<absl::StatusCode>(code), "why");
    EXPECT_EQ(ToRpcStatus(status).code(), code);
    EXPECT_EQ(FromRpcStatus(ToRpcStatus(status)), status);
  }
  EXPECT_EQ(ToRpcStatus(absl::OkStatus()).message(), "");
}

TEST(RpcStatusTest, WhatIsNoStatusIsUnknown) {
  google::rpc::Status rpc;
  for (const int code : {17, -1, 1000000}) {
    rpc.set_code(code);
    rpc.set_message("of a later version");
    EXPECT_EQ(FromRpcStatus(rpc), absl::UnknownError("of a later version"));
    EXPECT_EQ(ToRpcStatus(FromRpcStatus(rpc)).code(), 2);
  }
  rpc.set_code(0);
  rpc.add_details();
  EXPECT_EQ(FromRpcStatus(rpc), absl::OkStatus());
}

TEST(RpcStatusTest, BytesThatAreNoTextDoNotBreakTheMessage) {
  const google::rpc::Status rpc = ToRpcStatus(absl::InternalError("caf\xe9 and \xff"));
  EXPECT_EQ(rpc.message(), "caf? and ?");
}

}  // namespace
}  // namespace legoai
