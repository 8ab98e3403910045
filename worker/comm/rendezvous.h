// Where ranks meet: torch's TCPStore, served by rank 0. They tell each other there which GPU they have before NCCL connects them:
// it refuses two ranks on one GPU ("Duplicate GPU detected"), or hangs, and names them by numbers of its own.
#pragma once

#include <chrono>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "absl/status/status.h"
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

struct RankGpu {
  std::string id;    // of the GPU, the same in every process that has it: its UUID
  std::string name;  // for people: "GPU 0, NVIDIA H100 80GB HBM3"
};

// Puts this rank's GPU into the store, and waits for those of `ranks` (in the world, `rank` among them). FailedPrecondition: two
// ranks have one GPU, both are named. DeadlineExceeded or Unavailable: a rank did not come in the store's time.
absl::Status CheckOneGpuEach(c10d::Store& store, const std::vector<int64_t>& ranks, int64_t rank, const RankGpu& own);

}  // namespace legoai::comm
