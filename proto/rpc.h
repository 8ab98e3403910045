// What both ends of a gRPC connection share: errors as google.rpc.Status, and keepalive. Thread-safety: pure functions of what is
// given.
#pragma once

#include <grpcpp/server_builder.h>
#include <grpcpp/support/channel_arguments.h>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "google/rpc/status.pb.h"

namespace legoai {

// Errors across processes, with what a Status carries as data in `details`.

// Code, message and every payload: a FieldError's FieldViolation becomes a packed legoai.v1.FieldViolation. In the message, which
// holds UTF-8 only, question marks stand for other bytes that are not ASCII.
google::rpc::Status ToRpcStatus(const absl::Status& status);

// The way back: details become payloads, so GetFieldViolation() finds the field again. OK has neither message nor details. A code
// that is none of google.rpc's gives Unknown.
absl::Status FromRpcStatus(const google::rpc::Status& status);

// How soon a connection is given up whose other end has vanished: a host without power, a cut cable. Both sides send pings while
// calls are open. `lego`, agents and the server use the same settings, since the server must allow as many pings as they send.

// Noticed after at most the sum of both.
struct Keepalive {
  absl::Duration interval = absl::Seconds(10);  // without hearing anything, until a ping; at least a second
  absl::Duration timeout = absl::Seconds(10);   // until its answer
};

void SetKeepalive(const Keepalive& keepalive, grpc::ChannelArguments* arguments);
void SetKeepalive(const Keepalive& keepalive, grpc::ServerBuilder* builder);

}  // namespace legoai
