// Where ranks meet: torch's TCPStore, served by rank 0.
#pragma once

#include <chrono>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "absl/status/statusor.h"

namespace legoai::comm {

struct RendezvousOptions {
  std::string host = "127.0.0.1";
  int port = 0;
  int listen_fd = -1;                // a listening socket on `port` for rank 0; -1: it opens one
  int64_t rank = 0, world_size = 1;  // in the world
  std::string bind_address = "127.0.0.1";
  std::chrono::milliseconds timeout{100000};         // of every operation
  std::chrono::milliseconds connect_timeout{60000};  // of the rendezvous
};

// The store lives as long as somebody holds it; on rank 0 that includes its server.
absl::StatusOr<c10::intrusive_ptr<c10d::Store>> OpenStore(const RendezvousOptions& options);

// What Gloo, NCCL and the store throw, as Unavailable, or DeadlineExceeded for a time-out, with `what` in front.
absl::Status ToStatus(const std::string& what, const std::exception& error);

}  // namespace legoai::comm
