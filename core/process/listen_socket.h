// The listening socket of a job's rendezvous: made by the launcher, so that no port is guessed, and passed on to rank 0.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"

namespace legoai::launch {

struct ListenSocket {
  int fd = -1;  // close-on-exec; owned by the caller
  int64_t port = 0;
};

// Listens on 127.0.0.1. `port` 0: any free one. Errors: FieldError for "rendezvous_port" when it is in use or not to be had.
absl::StatusOr<ListenSocket> ListenOnLoopback(int64_t port);

}  // namespace legoai::launch
