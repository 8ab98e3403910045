// How soon a connection is given up whose other end is gone without a word: a host without power, a cut cable. Pings while calls
// are open, by both sides. `lego`, agents and the server set the same, since the server must allow as many as they send.
// Thread-safety: pure functions of what is given.
#pragma once

#include <grpcpp/server_builder.h>
#include <grpcpp/support/channel_arguments.h>

#include "absl/time/time.h"

namespace legoai {

// Noticed after at most the sum of both.
struct Keepalive {
  absl::Duration interval = absl::Seconds(10);  // without hearing anything, until a ping; at least a second
  absl::Duration timeout = absl::Seconds(10);   // until its answer
};

void SetKeepalive(const Keepalive& keepalive, grpc::ChannelArguments* arguments);
void SetKeepalive(const Keepalive& keepalive, grpc::ServerBuilder* builder);

}  // namespace legoai
