// All of a device's calibration within a time: first what is no operator's (device_bench.h), then the operator grid in its order
// (operator_grid.h), so that what is there when the time is over is a spread part of it with what matters most.
//
// Not thread-safe; blocking; keeps the device busy. Seconds.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "proto/legoai/v1/calibration.pb.h"
#include "simulator/measure/device_bench.h"
#include "simulator/measure/operator_grid.h"
#include "worker/comm/streams.h"

namespace legoai::sim {

struct CalibrationOptions {
  double seconds = 150;      // from `began` on; a point that was begun is ended
  double began = 0;          // by std::chrono::steady_clock, in seconds; 0: now
  bool quick = false;        // small shapes everywhere
  int64_t memory_bytes = 0;  // of the device, for a point's tensors
};

// Told after each piece of work; `what` is what was done, for a person.
using CalibrationProgress = std::function<void(const v1::Calibration& so_far, const std::string& what)>;

// Measures `points` (those of OperatorGrid) and all the rest into `calibration`, whose provenance is the caller's but for what is
// of the measuring itself. `streams` are for the eager step. A point that fails or has no room is left out by name. Errors: the
// device's own, where not even the first figures can be had, or where point after point fails: the rest is then not reached, and
// what was measured is there.
absl::Status RunCalibration(DeviceBench& bench, const std::vector<GridPoint>& points,
                            const std::function<std::unique_ptr<comm::Streams>()>& streams, const CalibrationOptions& options,
                            const CalibrationProgress& progress, v1::Calibration* calibration);

}  // namespace legoai::sim
