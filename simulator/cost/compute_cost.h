// How long an operator takes on a device. Every answer names its model, so that a report can say how much of a step rests on
// which model.
//
// Thread-safety: const after construction. Units: seconds.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "core/operators/op_facts.h"
#include "proto/legoai/v1/hardware.pb.h"

namespace legoai::sim {

struct Cost {
  double seconds = 0;
  const char* model = "";  // "roofline", "benchmark"
};

class ComputeCostModel {
 public:
  virtual ~ComputeCostModel() = default;
  // Of an operator that is neither a collective nor a control operator. Errors: the operator or its dtype is unknown.
  virtual absl::StatusOr<Cost> Time(const graph::Trace& trace, const graph::Instruction& instruction) const = 0;
};

// max(launch, FLOPs / (peak x efficiency), bytes / (bandwidth x efficiency)), with the device's efficiency of the operator's
// class: of the peak for matrix products and attention (whose bytes move at the elementwise share of the bandwidth), of the
// bandwidth for the rest (whose arithmetic runs at that share of the fp32 peak).
//
// An operator that was measured by itself has a curve: the least time, max(FLOPs / peak, bytes / bandwidth), over the share of it
// that calls of about this least time reach, interpolated in the logarithm. Short calls reach little of it, and no call is
// shorter than the shortest that was measured.
class RooflineModel : public ComputeCostModel {
 public:
  // Errors: FieldError if a class has no efficiency, fp32 no peak, or a curve no type, points that do not ascend, or a twin.
  static absl::StatusOr<std::unique_ptr<RooflineModel>> Create(const v1::Device& device);
  absl::StatusOr<Cost> Time(const graph::Trace& trace, const graph::Instruction& instruction) const override;
  // The same from facts alone. Errors: the device has no peak for the dtype.
  absl::StatusOr<double> Seconds(const std::string& name, const OpFacts& facts) const;
  // Of any operator of the class, without curves.
  absl::StatusOr<double> Seconds(const OpFacts& facts) const;
  // No call with these facts, of whatever operator of the class and however cut into calls, takes less.
  absl::StatusOr<double> LeastSeconds(const OpFacts& facts) const;

 private:
  struct Curve {
    v1::DType dtype = v1::FLOAT32;
    bool unaligned = false;
    std::vector<double> log_least_seconds, log_fraction;
  };

  RooflineModel() = default;
  absl::Status AddClass(OpClass op_class);
  absl::Status AddCurve(const v1::Efficiency& efficiency);
  const Curve* FindCurve(const std::string& name, const OpFacts& facts) const;
  absl::StatusOr<double> PeakOf(const OpFacts& facts) const;
  absl::StatusOr<double> SecondsAt(const OpFacts& facts, double efficiency, double byte_share) const;
  v1::Device device_;
  std::map<int, double> peaks_;  // by dtype
  // Of the class and dtype, or else of the class. Errors: the class has no compute time.
  absl::StatusOr<double> EfficiencyOf(OpClass op_class, v1::DType dtype) const;

  std::map<std::pair<OpClass, int>, double> efficiencies_;  // by class and dtype; DTYPE_UNSPECIFIED: of the others
  std::map<std::pair<OpClass, int>, double> best_;          // the same, and of all curves
  absl::flat_hash_map<std::string, std::vector<Curve>> curves_;
};

// Measured seconds by operator signature (SignatureOf); filled by benchmarking operators on a device.
class BenchmarkTable {
 public:
  void Set(const std::string& signature, double seconds) { seconds_[signature] = seconds; }
  const double* Find(const std::string& signature) const {
    auto found = seconds_.find(signature);
    return found == seconds_.end() ? nullptr : &found->second;
  }
  size_t size() const { return seconds_.size(); }
  const std::map<std::string, double>& entries() const { return seconds_; }

 private:
  std::map<std::string, double> seconds_;
};

// Looks operators up in a table; a missing one is an error that names the signature.
class BenchmarkModel : public ComputeCostModel {
 public:
  // `table` is not owned.
  explicit BenchmarkModel(const BenchmarkTable* table) : table_(table) {}
  absl::StatusOr<Cost> Time(const graph::Trace& trace, const graph::Instruction& instruction) const override;

 private:
  const BenchmarkTable* table_;
};

}  // namespace legoai::sim
