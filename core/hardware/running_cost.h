// What training at a predicted speed uses up: tokens a day, GPU-hours and money. Torch-free. Thread-safety: a pure function.
#pragma once

#include "proto/legoai/v1/cluster.pb.h"
#include "proto/legoai/v1/estimate.pb.h"

namespace legoai::sim {

// Of steps of `tokens_per_step` tokens on all devices of `cluster`; empty where a step takes no time. Money needs
// Cluster.price_per_gpu_hour.
v1::RunningCost RunningCostOf(const v1::Cluster& cluster, double tokens_per_step, double step_seconds);

}  // namespace legoai::sim
