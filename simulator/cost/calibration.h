// From what a device measured (calibration.proto) to its efficiencies: for each class of operators and type the one with which
// the roofline (compute_cost.h) comes nearest, and how near it comes to points that it was not fitted on.
//
// 15 % of the points are held back, by a hash of operator, type and shape: the same ones whenever they are measured again. The
// fit is the least sum of |log(predicted / measured)| over the others that take several launches; shorter ones say nothing of an
// efficiency, but the error is told of all that are held back. Operators that memory bounds come first: products and attention
// move their bytes at the elementwise share.
//
// Thread-safety: pure functions.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/legoai/v1/calibration.pb.h"
#include "proto/legoai/v1/hardware.pb.h"
#include "simulator/cost/operator_table.h"

namespace legoai::sim {

// The least of points to fit on and to hold back; with fewer a class and type keeps what is assumed of it.
inline constexpr int64_t kLeastFitted = 10, kLeastHeldBack = 3;

struct PredictionError {
  double median = 0, p90 = 0;    // of |predicted / measured - 1|
  double within_10_percent = 0;  // share of the points
  double log_rmse = 0;           // of log(predicted / measured)
};

struct ClassFit {
  OpClass op_class = OpClass::kMatmul;
  v1::DType dtype = v1::FLOAT32;
  int64_t points = 0, held_back = 0;                        // those held back are among the points
  double assumed = 0, measured = 0;                         // efficiencies
  PredictionError assumed_error = {}, measured_error = {};  // on what was held back
};

struct DeviceFit {
  v1::Device device;  // the assumed one with what was measured, by sources that say so
  std::vector<ClassFit> fits;
  std::vector<std::string> notes;  // what was too little measured, or cannot be: sentences for a person
};

bool IsHeldBack(const v1::OperatorMeasurement& measurement);

// `assumed` gives peaks, memory and links, which stay. Errors: FieldError of "device" where the calibration is of another kind or
// memory; of "operators", naming class and type, where nothing has points enough; of "operators.op_class" or "operators.seconds"
// for one that no measurement can have; what RooflineModel::Create finds missing in `assumed`.
absl::StatusOr<DeviceFit> FitDevice(const v1::Calibration& calibration, const v1::Device& assumed);

// Pure.

// Of at least one number, sorted; between two neighbours in proportion. `share`: 0 to 1.
inline double Quantile(const std::vector<double>& sorted, double share) {
  const double place = share * static_cast<double>(sorted.size() - 1);
  const size_t below = static_cast<size_t>(place), above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (place - static_cast<double>(below)) * (sorted[above] - sorted[below]);
}

}  // namespace legoai::sim
