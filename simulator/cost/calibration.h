// Fits a device's efficiencies to its measurements (calibration.proto): for each operator class and type the value with which the
// roofline (compute_cost.h) fits best, and for each operator with some points a curve: the share of their least time that its
// calls reach; with the error of both together on held-out points.
//
// 15 % of the points are held out, by a hash of operator, type and shape, so that repeated measurements hold out the same ones.
// The fit minimizes the sum of |log(predicted / measured)| over the others that take several launches; shorter ones carry no
// information about an efficiency, but the error covers all held-out points. Memory-bound classes are fitted first, because
// products and attention move their bytes at the elementwise share.
//
// Thread-safety: pure functions.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/operators/operator_table.h"
#include "proto/legoai/v1/calibration.pb.h"
#include "proto/legoai/v1/hardware.pb.h"

namespace legoai::sim {

// Minimum numbers of points to fit on and to hold out; with fewer a class and type keeps its assumed efficiency.
inline constexpr int64_t kLeastFitted = 10, kLeastHeldBack = 3;

struct PredictionError {
  double median = 0, p90 = 0;    // of |predicted / measured - 1|
  double within_10_percent = 0;  // share of the points
  double log_rmse = 0;           // of log(predicted / measured)
};

struct ClassFit {
  OpClass op_class = OpClass::kMatmul;
  v1::DType dtype = v1::FLOAT32;
  int64_t points = 0, held_back = 0;                        // held-out points are included in points
  double assumed = 0, measured = 0;                         // efficiencies
  PredictionError assumed_error = {}, measured_error = {};  // on held-out points
};

struct DeviceFit {
  v1::Device device;  // the assumed one with measured values and their sources
  std::vector<ClassFit> fits;
  std::vector<std::string> notes;  // what was measured too little or cannot be: sentences for people
};

bool IsHeldBack(const v1::OperatorMeasurement& measurement);

// Peaks, memory and links are those of `assumed`. Errors: FieldError of "device" if the calibration is for another kind or memory
// size; of "operators", naming class and type, if none has enough points; of "operators.op_class" or "operators.seconds" for an
// impossible value; those of RooflineModel::Create for `assumed`.
absl::StatusOr<DeviceFit> FitDevice(const v1::Calibration& calibration, const v1::Device& assumed);

// Pure.

// Of at least one number, sorted; interpolates linearly. `share`: 0 to 1.
inline double Quantile(const std::vector<double>& sorted, double share) {
  const double place = share * static_cast<double>(sorted.size() - 1);
  const size_t below = static_cast<size_t>(place), above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (place - static_cast<double>(below)) * (sorted[above] - sorted[below]);
}

}  // namespace legoai::sim
