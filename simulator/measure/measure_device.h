// The calibration of a device of this machine, from its name to the file's message (`lego-measure --device=cuda`).
//
// Before the first tensor, once in a process. Blocking; keeps the device busy. Errors: FieldError of "--device" for one that is
// not here, or of another flag.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "simulator/measure/calibration_run.h"

namespace legoai::sim {

struct MeasureOptions {
  std::string device;    // "cuda", or "cpu" with `quick`, to try the path
  double seconds = 150;  // from now on
  bool quick = false;
};

// `calibration` is filled from the start on, and has what was measured even where the status is an error.
absl::Status MeasureDevice(const MeasureOptions& options, const CalibrationProgress& progress, v1::Calibration* calibration);

}  // namespace legoai::sim
