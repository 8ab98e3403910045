// Communicators over NCCL; unique ids travel through the rendezvous store. Calls are enqueued on the current CUDA stream.
#pragma once

#include "absl/status/statusor.h"
#include "worker/comm/rendezvous.h"
#include "worker/comm/runtime.h"

namespace legoai::comm {

absl::StatusOr<CommunicatorFactory> MakeNcclFactory(const RendezvousOptions& options);

}  // namespace legoai::comm
