#include "simulator/cost/compute_cost.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/errors.h"
#include "proto/status.h"

namespace legoai::sim {
namespace {

constexpr OpClass kTimedClasses[] = {OpClass::kMatmul,    OpClass::kAttention, OpClass::kElementwise,
                                     OpClass::kReduction, OpClass::kCopy,      OpClass::kOptimizer};

bool BoundByPeak(OpClass op_class) { return op_class == OpClass::kMatmul || op_class == OpClass::kAttention; }

}  // namespace

absl::StatusOr<std::unique_ptr<RooflineModel>> RooflineModel::Create(const v1::Device& device) {
  auto model = std::unique_ptr<RooflineModel>(new RooflineModel());
  model->device_ = device;
  for (const auto& peak : device.peak_flops()) model->peaks_[peak.dtype()] = peak.flops_per_second();
  for (const OpClass op_class : kTimedClasses) RETURN_IF_ERROR(model->AddClass(op_class));
  for (const auto& efficiency : device.efficiencies()) {
    if (!efficiency.operator_().empty()) RETURN_IF_ERROR(model->AddCurve(efficiency));
  }
  if (!(model->peaks_[v1::FLOAT32] > 0)) return FieldError("device.peak_flops", "FLOAT32", "give its peak");
  return model;
}

absl::Status RooflineModel::AddClass(OpClass op_class) {
  for (const auto& efficiency : device_.efficiencies()) {
    if (efficiency.op_class() != OpClassName(op_class)) continue;
    if (efficiency.operator_().empty()) efficiencies_[{op_class, efficiency.dtype()}] = efficiency.fraction();
    double& best = best_[{op_class, efficiency.dtype()}];
    best = std::max(best, efficiency.fraction());
    for (const auto& point : efficiency.curve()) best = std::max(best, point.fraction());
  }
  if (efficiencies_[{op_class, v1::DTYPE_UNSPECIFIED}] > 0) return absl::OkStatus();
  return FieldError("device.efficiencies", OpClassName(op_class), "give this class of operators a positive fraction");
}

absl::Status RooflineModel::AddCurve(const v1::Efficiency& efficiency) {
  if (efficiency.dtype() == v1::DTYPE_UNSPECIFIED)
    return FieldError("device.efficiencies.dtype", efficiency.operator_(), "give the type of the calls that its curve is of");
  Curve curve;
  curve.dtype = efficiency.dtype();
  curve.unaligned = efficiency.unaligned();
  double before = 0;
  for (const auto& point : efficiency.curve()) {
    if (!(point.least_seconds() > before) || !(point.fraction() > 0)) break;
    before = point.least_seconds();
    curve.log_least_seconds.push_back(std::log(point.least_seconds()));
    curve.log_fraction.push_back(std::log(point.fraction()));
  }
  if (curve.log_fraction.empty() || std::ssize(curve.log_fraction) != efficiency.curve_size()) {
    return FieldError("device.efficiencies.curve", efficiency.operator_(),
                      "give points of ascending least_seconds with positive fractions");
  }
  std::vector<Curve>& known = curves_[efficiency.operator_()];
  for (const Curve& other : known) {
    if (other.dtype != curve.dtype || other.unaligned != curve.unaligned) continue;
    return FieldError("device.efficiencies.operator", efficiency.operator_(),
                      "give it one curve of a type, and one of its unaligned calls");
  }
  known.push_back(std::move(curve));
  return absl::OkStatus();
}

const RooflineModel::Curve* RooflineModel::FindCurve(const std::string& name, const OpFacts& facts) const {
  const auto found = curves_.find(name);
  if (found == curves_.end()) return nullptr;
  for (const Curve& curve : found->second) {
    if (curve.dtype == facts.dtype && curve.unaligned == facts.unaligned) return &curve;
  }
  return nullptr;
}

absl::StatusOr<double> RooflineModel::EfficiencyOf(OpClass op_class, v1::DType dtype) const {
  auto found = efficiencies_.find({op_class, dtype});
  if (found == efficiencies_.end()) found = efficiencies_.find({op_class, v1::DTYPE_UNSPECIFIED});
  if (found != efficiencies_.end()) return found->second;
  return absl::InvalidArgumentError(absl::StrCat(OpClassName(op_class), " operators have no compute time"));
}

absl::StatusOr<double> RooflineModel::PeakOf(const OpFacts& facts) const {
  if (!BoundByPeak(facts.op_class)) return peaks_.at(v1::FLOAT32);
  const auto found = peaks_.find(facts.dtype);
  if (found != peaks_.end() && found->second > 0) return found->second;
  return FieldError("device.peak_flops", v1::DType_Name(facts.dtype), absl::StrCat(device_.type(), " has no peak for it"));
}

absl::StatusOr<double> RooflineModel::SecondsAt(const OpFacts& facts, double efficiency, double byte_share) const {
  ASSIGN_OR_RETURN(const double peak, PeakOf(facts));
  const double arithmetic = facts.flops / (peak * efficiency);
  const double traffic = static_cast<double>(facts.bytes()) / (device_.memory_bandwidth_bytes_per_second() * byte_share);
  return std::max({device_.kernel_launch_seconds(), arithmetic, traffic});
}

absl::StatusOr<double> RooflineModel::Seconds(const OpFacts& facts) const {
  if (facts.op_class == OpClass::kView || facts.op_class == OpClass::kControl) return 0.0;
  ASSIGN_OR_RETURN(const double efficiency, EfficiencyOf(facts.op_class, facts.dtype));
  if (!BoundByPeak(facts.op_class)) return SecondsAt(facts, efficiency, efficiency);
  ASSIGN_OR_RETURN(const double byte_share, EfficiencyOf(OpClass::kElementwise, facts.dtype));
  return SecondsAt(facts, efficiency, byte_share);
}

absl::StatusOr<double> RooflineModel::Seconds(const std::string& name, const OpFacts& facts) const {
  const Curve* const curve = FindCurve(name, facts);
  if (curve == nullptr) return Seconds(facts);
  ASSIGN_OR_RETURN(const double peak, PeakOf(facts));
  const double bandwidth = device_.memory_bandwidth_bytes_per_second();
  const double least = std::max(facts.flops / peak, static_cast<double>(facts.bytes()) / bandwidth);
  const std::vector<double>& x = curve->log_least_seconds;
  const std::vector<double>& y = curve->log_fraction;
  const double at = std::log(std::max(least, 1e-12));
  const auto seconds = [&](double log_seconds) { return std::max(device_.kernel_launch_seconds(), std::exp(log_seconds)); };
  if (at <= x.front()) return seconds(x.front() - y.front());
  if (at >= x.back()) return seconds(at - y.back());
  const size_t above = std::upper_bound(x.begin(), x.end(), at) - x.begin();
  const double share = (at - x[above - 1]) / (x[above] - x[above - 1]);
  return seconds(at - (y[above - 1] + share * (y[above] - y[above - 1])));
}

absl::StatusOr<double> RooflineModel::LeastSeconds(const OpFacts& facts) const {
  const auto best = [&](OpClass op_class) {
    double fraction = 0;
    for (const v1::DType dtype : {facts.dtype, v1::DTYPE_UNSPECIFIED}) {
      const auto found = best_.find({op_class, dtype});
      if (found != best_.end()) fraction = std::max(fraction, found->second);
    }
    return fraction;
  };
  if (facts.op_class == OpClass::kView || facts.op_class == OpClass::kControl) return 0.0;
  const double efficiency = best(facts.op_class);
  if (!BoundByPeak(facts.op_class)) return SecondsAt(facts, efficiency, efficiency);
  return SecondsAt(facts, efficiency, std::max(efficiency, best(OpClass::kElementwise)));
}

absl::StatusOr<Cost> RooflineModel::Time(const graph::Trace& trace, const graph::Instruction& instruction) const {
  graph::InstructionView op(trace, instruction);
  const OperatorRow* row = FindOperator(op.name());
  if (row == nullptr) {
    return absl::NotFoundError(
        absl::StrCat("operator ", op.name(), " is not known to the cost models; add its row to operator_table.cc"));
  }
  auto seconds = Seconds(op.name(), FactsOf(op, *row));
  if (!seconds.ok()) return Annotate(seconds.status(), op.name());
  return Cost{*seconds, "roofline"};
}

absl::StatusOr<Cost> BenchmarkModel::Time(const graph::Trace& trace, const graph::Instruction& instruction) const {
  std::string signature = SignatureOf(graph::InstructionView(trace, instruction));
  if (const double* seconds = table_->Find(signature)) return Cost{*seconds, "benchmark"};
  return absl::NotFoundError(absl::StrCat("no measurement of ", signature));
}

}  // namespace legoai::sim
