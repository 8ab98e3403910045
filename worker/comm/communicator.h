// Collectives and point-to-point messages among the ranks of one group, on raw memory. Implementations: Gloo (CPU processes),
// NCCL (in the CUDA plugin), and copies for a group of one. A fake Runtime has none: nothing moves.
//
// One communicator serves one (group, channel) pair and is used by one thread (or CUDA stream) at a time; a send and a receive of
// one channel may run on two threads. On CPU a call returns when it is done; on CUDA when it is enqueued on the current CUDA
// stream. Peers are indices in the group. The order of summation depends only on rank and size, so runs are reproducible.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "worker/comm/streams.h"

namespace legoai::comm {

enum class ReduceOp : int64_t { kSum = 0, kMax = 1 };

class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int64_t rank() const = 0;  // index in the group
  virtual int64_t size() const = 0;

  // out: size() x bytes, ordered by rank. `out` may contain `in` at this rank's position.
  virtual absl::Status AllGather(void* out, const void* in, int64_t bytes) = 0;
  // in: size() x count elements; out: count elements, this rank's part of the sum.
  virtual absl::Status ReduceScatter(void* out, const void* in, int64_t count, c10::ScalarType dtype, ReduceOp op) = 0;
  virtual absl::Status AllReduce(void* data, int64_t count, c10::ScalarType dtype, ReduceOp op) = 0;
  // in, out: size() x bytes; part i of `in` goes to rank i.
  virtual absl::Status AllToAll(void* out, const void* in, int64_t bytes) = 0;
  // in: bytes for the next rank; out: as many from the one before. The last rank's go to rank 0.
  virtual absl::Status Rotate(void* out, const void* in, int64_t bytes) = 0;
  virtual absl::Status Broadcast(void* data, int64_t bytes, int64_t root) = 0;
  virtual absl::Status Send(const void* data, int64_t bytes, int64_t peer) = 0;
  virtual absl::Status Recv(void* data, int64_t bytes, int64_t peer) = 0;

  // If calls return before they are done: the state of pending calls. DeadlineExceeded once a call exceeds its time-out after the
  // device started it, Unavailable when a peer is known to be lost. Does not wait. Call it between calls, from the same thread.
  virtual absl::Status Health() { return absl::OkStatus(); }
  // Aborts pending calls, whatever the peers do; later calls fail.
  virtual void Abort() {}
};

// The communicator of a group of one: collectives copy, or do nothing if they work in place. `streams` does the copies, because
// it can access the tensors' memory; it is not owned and outlives the communicator. Null: host memory.
std::unique_ptr<Communicator> MakeLocalCommunicator(Streams* streams = nullptr);

}  // namespace legoai::comm
