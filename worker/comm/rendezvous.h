// The rendezvous of ranks: torch's TCPStore, served by rank 0. Ranks exchange their GPUs there before NCCL connects them, because
// NCCL hangs with two ranks on one GPU or refuses them ("Duplicate GPU detected") with device numbers of its own.
#pragma once

#include <chrono>
#include <functional>
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
  // Of NCCL's factory: rotations of the group of tensor parallel go through symmetric memory where all its GPUs are on one host
  // and reach each other's memory; by NCCL elsewhere. `say` hears from the group's first rank which, and why; it may be empty.
  bool symmetric_tensor_parallel = false;
  std::function<void(const std::string&)> say;
};

// The store lives as long as a reference to it; on rank 0 that includes its server.
absl::StatusOr<c10::intrusive_ptr<c10d::Store>> OpenStore(const RendezvousOptions& options);

// Converts exceptions of Gloo, NCCL and the store to Unavailable, or DeadlineExceeded for a time-out, prefixed with `what`.
absl::Status ToStatus(const std::string& what, const std::exception& error);

struct RankGpu {
  std::string id;    // of the GPU, the same in every process: its UUID, and the host where NCCL is told one
  std::string name;  // for people: "GPU 0, NVIDIA H100 80GB HBM3"
};

// Publishes this rank's GPU in the store and waits for those of `ranks` (in the world, `rank` among them). FailedPrecondition:
// two ranks share a GPU; both are named. DeadlineExceeded or Unavailable: a rank did not arrive within the store's time-out.
absl::Status CheckOneGpuEach(c10d::Store& store, const std::vector<int64_t>& ranks, int64_t rank, const RankGpu& own);

}  // namespace legoai::comm
