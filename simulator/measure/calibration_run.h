// Calibrates a device within a time limit: first the figures that belong to no operator (device_bench.h), then the operator grid
// in its order (operator_grid.h), so that whenever the time runs out the measured points are spread over the grid, the most
// important first.
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
  double seconds = 150;      // from `began` on; a point that was started is finished
  double began = 0;          // by std::chrono::steady_clock, in seconds; 0: now
  bool quick = false;        // small shapes everywhere
  int64_t memory_bytes = 0;  // of the device, for a point's tensors
};

// Called after each piece of work; `what` describes it, for people.
using CalibrationProgress = std::function<void(const v1::Calibration& so_far, const std::string& what)>;

// Measures `points` (those of OperatorGrid) and everything else into `calibration`; the caller sets its provenance except for
// fields about the measurement. `streams` are for the eager step. A point that fails or does not fit in memory is skipped and
// named. Errors: the device's own, if even the first figures fail or many points fail in a row; `calibration` then has what was
// measured so far.
absl::Status RunCalibration(DeviceBench& bench, const std::vector<GridPoint>& points,
                            const std::function<std::unique_ptr<comm::Streams>()>& streams, const CalibrationOptions& options,
                            const CalibrationProgress& progress, v1::Calibration* calibration);

// Calibrates a device of this machine, given its name (`lego-measure --device=cuda`).
//
// Call it once in a process, before the first tensor is created. Blocking; keeps the device busy. Errors: FieldError of
// "--device" for a missing device, or of another flag.
struct MeasureOptions {
  std::string device;    // "cuda", or "cpu" with `quick`, to test the code path
  double seconds = 150;  // from now on
  bool quick = false;
};

// `calibration` is filled incrementally and has what was measured even if the status is an error.
absl::Status MeasureDevice(const MeasureOptions& options, const CalibrationProgress& progress, v1::Calibration* calibration);

}  // namespace legoai::sim
