// Communicators over Gloo, for CPU processes. Rendezvous through torch's TCPStore.
//
// A lost peer gives Unavailable at once, a peer that does not answer DeadlineExceeded after `timeout`. Sums run around a ring:
// their order depends on rank and size alone. bf16 is summed in bf16, rounding at each step like the devices do.
#pragma once

#include <chrono>
#include <string>

#include "absl/status/statusor.h"
#include "worker/comm/runtime.h"

namespace legoai::comm {

struct GlooOptions {
  std::string host = "127.0.0.1";  // of the store, which rank 0 serves
  int port = 0;
  int listen_fd = -1;                // a listening socket on `port` for rank 0; -1: it opens one
  int64_t rank = 0, world_size = 1;  // in the world
  std::string bind_address = "127.0.0.1";
  std::chrono::milliseconds timeout{100000};         // of every operation
  std::chrono::milliseconds connect_timeout{60000};  // of the rendezvous
};

// Connects to the store (rank 0 serves it as long as the factory or one of its communicators lives).
absl::StatusOr<CommunicatorFactory> MakeGlooFactory(const GlooOptions& options);

}  // namespace legoai::comm
