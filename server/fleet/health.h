// What agents tell of the health of their machines. Thread-safety: pure functions.
#pragma once

#include <vector>

#include "absl/status/status.h"
#include "proto/legoai/v1/worker.pb.h"

namespace legoai::server {

// What has come since `before`, the worst first: a fault of the whole worker has slot -1.
std::vector<v1::SlotFault> NewFaults(const v1::WorkerHealth& before, const v1::WorkerHealth& after);

// Whether it can be so, of a worker with these facts: it is kept, and shown in lists. FieldErrors of "health".
absl::Status CheckHealth(const v1::Worker& worker, const v1::WorkerHealth& health);

}  // namespace legoai::server
