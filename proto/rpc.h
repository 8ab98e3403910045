// Shared by both ends of a gRPC connection: errors as google.rpc.Status, keepalive, and limits. Thread-safety: pure functions of
// their arguments.
#pragma once

#include <grpcpp/server_builder.h>
#include <grpcpp/support/channel_arguments.h>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "google/rpc/status.pb.h"

namespace legoai {

// Errors across processes, with the payloads of a Status in `details`.

// Code, message and every payload: a FieldError's FieldViolation becomes a packed legoai.v1.FieldViolation. In the message, which
// must be UTF-8, question marks replace non-ASCII bytes of invalid text.
google::rpc::Status ToRpcStatus(const absl::Status& status);

// The inverse: details become payloads, so GetFieldViolation() finds the field. OK has neither message nor details. An unknown
// code gives Unknown.
absl::Status FromRpcStatus(const google::rpc::Status& status);

// How soon a connection to a vanished peer is closed: a host without power, a cut cable. Both sides send pings while calls are
// open. `lego`, agents and the server use the same settings, since the server must allow as many pings as they send.

// A lost peer is noticed after at most the sum of both.
struct Keepalive {
  absl::Duration interval = absl::Seconds(10);  // without hearing anything, until a ping; at least a second
  absl::Duration timeout = absl::Seconds(10);   // until its answer
};

void SetKeepalive(const Keepalive& keepalive, grpc::ChannelArguments* arguments);
void SetKeepalive(const Keepalive& keepalive, grpc::ServerBuilder* builder);

// A server takes calls whose metadata have as much as this, where gRPC's own limit is 8 KiB: an identity provider's token may
// have 16 KiB (server/oidc/jwt.h). Clients learn of it from the server.
inline constexpr int kMostMetadataBytes = 32 << 10;
void SetMetadataLimit(grpc::ServerBuilder* builder);

}  // namespace legoai
