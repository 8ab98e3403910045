// This process's GPU: who it is, what its calls say, and calls to it that may never come back.
#pragma once

#include <cuda_runtime.h>

#include <functional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/comm/rendezvous.h"

namespace legoai::comm {

// Unavailable with what CUDA says of it.
absl::Status Check(cudaError_t error, std::string_view what);

// A GPU's UUID as NVML writes it: the bytes in hexadecimal, with hyphens after 4, 6, 8 and 10 of them.
std::string UuidText(const cudaUUID_t& uuid);

// The GPU of this process with this UUID; -1: there is none.
int DeviceOfUuid(const char* uuid);

// The selected one.
absl::StatusOr<RankGpu> OwnGpu();

// Runs `end` with that GPU selected for at most ten seconds: it may wait for a peer that is gone, and then goes on beside us
// until the process ends. After the first that did, others get one second: the peer is gone for all of them.
void EndInTime(int device, std::function<void()> end);

}  // namespace legoai::comm
