// How a host starts and watches its ranks, from what is to be trained. Thread-safety: pure functions.
#pragma once

#include "proto/legoai/v1/launch.pb.h"
#include "worker/launch/host_supervisor.h"
#include "worker/launch/prepare_training.h"

namespace legoai::launch {

// `start` is that of all ranks, complete but for what each rank or host has of its own.
HostOptions HostOptionsOf(const TrainRequest& request, const v1::Start& start);

}  // namespace legoai::launch
