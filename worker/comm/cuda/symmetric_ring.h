// Rotations round a group whose GPUs reach each other's memory, without NCCL.
//
// A message goes in pieces through the slots of the next rank's buffer (worker/comm/symmetric_slots.h). On the calling stream a
// rank waits until a slot of the next rank is free, has the piece copied there over the link, and counts it as arrived; on a
// stream of its own it waits for what arrives from the rank before, copies it to where it belongs, and counts the slot as free.
// The counters lie with who waits for them, and are written by the other; they only grow. Waiting and counting are operations of
// the stream and no kernels: a copy over the link takes none of the multiprocessors that a product beside it computes on, where
// NCCL's kernels take some, and a wait that will never end can be ended (Release).
//
// Calls of all ranks are alike, in the same order. Operations are enqueued piece by piece, each rank's push of a piece before its
// take of the same: whatever streams the device runs behind each other, that order of all ranks has no circle of waits.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <memory>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace legoai::comm {

class SymmetricRing {
 public:
  // All ranks of the group call it at once, as SymmetricBuffer::Connect, whose errors it has.
  static absl::StatusOr<std::unique_ptr<SymmetricRing>> Connect(const c10::intrusive_ptr<c10d::Store>& store, int64_t rank,
                                                                int64_t size);
  // Waits for the GPU: for ever where a rank is lost, unless waits were released.
  virtual ~SymmetricRing() = default;

  // As Communicator::Rotate; `out` and `in` do not overlap. Enqueued on the current CUDA stream, which goes on when `out` is
  // there and `in` may be written. Errors: Unavailable with the device's message.
  virtual absl::Status Rotate(void* out, const void* in, int64_t bytes) = 0;

  // Lets whatever waits for another rank go on with what it finds, for a step that is given up. Does not wait. Called from a
  // thread that has selected the GPU.
  virtual void Release() = 0;
};

}  // namespace legoai::comm
