// Communicators over Gloo, for CPU processes. Rendezvous through torch's TCPStore.
//
// A lost peer gives Unavailable at once, a peer that does not answer DeadlineExceeded after `timeout`. Sums run around a ring:
// their order depends on rank and size alone. bf16 is summed in bf16, rounding at each step like the devices do.
#pragma once

#include "absl/status/statusor.h"
#include "worker/comm/rendezvous.h"
#include "worker/comm/runtime.h"

namespace legoai::comm {

// Connects to the store (rank 0 serves it as long as the factory or one of its communicators lives).
absl::StatusOr<CommunicatorFactory> MakeGlooFactory(const RendezvousOptions& options);

}  // namespace legoai::comm
