// Gauges as of now: jobs by state from the store, workers and slots from what the fleet says. For the moment before a scrape.
// Thread-safe; blocks for as long as the store reads.
#pragma once

#include <vector>

#include "absl/status/status.h"
#include "proto/legoai/v1/worker.pb.h"
#include "server/metrics/registry.h"
#include "server/store/store.h"

namespace legoai::server {

// Slots are those of ready workers: what a job could have. Use is that of connected ones.
void SetWorkerGauges(const std::vector<v1::Worker>& workers, Metrics* metrics);

// Errors: those of the store; the gauges then stay as they were.
absl::Status SetJobGauges(store::Store& store, Metrics* metrics);

}  // namespace legoai::server
