// Communicators that rotate through symmetric memory (symmetric_ring.h).
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "absl/status/statusor.h"
#include "worker/comm/communicator.h"
#include "worker/comm/rendezvous.h"
#include "worker/comm/runtime.h"

namespace legoai::comm {

// `others` with rotations through symmetric memory where all GPUs of the group reach each other's memory, else `others`; `say`
// hears which, on the group's first rank, and may be empty. `others` is of the group's rank and size. All ranks call it at once.
// `timeout`: of a rotation, after which Health() is DeadlineExceeded. Errors: those of the store and of the device.
absl::StatusOr<std::unique_ptr<Communicator>> WithSymmetricRotation(std::unique_ptr<Communicator> others,
                                                                    const c10::intrusive_ptr<c10d::Store>& store,
                                                                    const mesh::Group& group, std::chrono::milliseconds timeout,
                                                                    const std::function<void(const std::string&)>& say);

// Communicators that only rotate, and answer Unimplemented to all else. Errors: FailedPrecondition with the reason where GPUs do
// not reach each other's memory; those of the rendezvous.
absl::StatusOr<CommunicatorFactory> MakeSymmetricFactory(const RendezvousOptions& options);

}  // namespace legoai::comm
