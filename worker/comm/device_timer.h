// Time that a device takes for what is enqueued on the current stream: CUDA's events in the plugin, the host's clock on a CPU,
// where work is done when its call returns.
//
// Seconds. Not thread-safe: Start and Stop come from the dispatching thread, in turn.
#pragma once

#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace legoai::comm {

class DeviceTimer {
 public:
  virtual ~DeviceTimer() = default;
  // From here on. Does not wait: what was enqueued before is not part of it.
  virtual absl::Status Start() = 0;
  // Waits for all that was enqueued since, and gives the seconds between. Errors: Unavailable, in the device's words;
  // FailedPrecondition without a Start.
  virtual absl::StatusOr<double> Stop() = 0;
};

std::unique_ptr<DeviceTimer> MakeHostTimer();

}  // namespace legoai::comm
