// The timer of CUDA: two events on the current stream.
#pragma once

#include <memory>

#include "worker/comm/device_timer.h"

namespace legoai::comm {

std::unique_ptr<DeviceTimer> MakeCudaTimer();

}  // namespace legoai::comm
