// Calibrates a device of this machine, given its name (`lego-measure --device=cuda`).
//
// Call it once in a process, before the first tensor is created. Blocking; keeps the device busy. Errors: FieldError of
// "--device" for a missing device, or of another flag.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "simulator/measure/calibration_run.h"

namespace legoai::sim {

struct MeasureOptions {
  std::string device;    // "cuda", or "cpu" with `quick`, to test the code path
  double seconds = 150;  // from now on
  bool quick = false;
};

// `calibration` is filled incrementally and has what was measured even if the status is an error.
absl::Status MeasureDevice(const MeasureOptions& options, const CalibrationProgress& progress, v1::Calibration* calibration);

}  // namespace legoai::sim
