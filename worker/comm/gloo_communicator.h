// Communicators over Gloo, for CPU processes. Rendezvous through torch's TCPStore.
//
// A lost peer gives Unavailable at once, a peer that does not answer DeadlineExceeded after `timeout`. Sums run around a ring, so
// their order depends only on rank and size. bf16 is summed in bf16, rounding at each step as devices do.
#pragma once

#include "absl/status/statusor.h"
#include "worker/comm/rendezvous.h"
#include "worker/comm/runtime.h"

namespace legoai::comm {

// Connects to the store, which rank 0 serves for the lifetime of the factory and its communicators.
absl::StatusOr<CommunicatorFactory> MakeGlooFactory(const RendezvousOptions& options);

}  // namespace legoai::comm
