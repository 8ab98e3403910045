#include "simulator/cost/compute_cost.h"

#include <algorithm>

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
  for (OpClass op_class : kTimedClasses) {
    for (const auto& efficiency : device.efficiencies()) {
      if (efficiency.op_class() == OpClassName(op_class)) {
        model->efficiencies_[{op_class, efficiency.dtype()}] = efficiency.fraction();
      }
    }
    if (!(model->efficiencies_[{op_class, v1::DTYPE_UNSPECIFIED}] > 0)) {
      return FieldError("device.efficiencies", OpClassName(op_class), "give this class of operators a positive fraction");
    }
  }
  if (!(model->peaks_[v1::FLOAT32] > 0)) return FieldError("device.peak_flops", "FLOAT32", "give its peak");
  return model;
}

absl::StatusOr<double> RooflineModel::EfficiencyOf(OpClass op_class, v1::DType dtype) const {
  auto found = efficiencies_.find({op_class, dtype});
  if (found == efficiencies_.end()) found = efficiencies_.find({op_class, v1::DTYPE_UNSPECIFIED});
  if (found != efficiencies_.end()) return found->second;
  return absl::InvalidArgumentError(absl::StrCat(OpClassName(op_class), " operators have no compute time"));
}

absl::StatusOr<double> RooflineModel::Seconds(const OpFacts& facts) const {
  if (facts.op_class == OpClass::kView || facts.op_class == OpClass::kControl) return 0.0;
  ASSIGN_OR_RETURN(auto efficiency, EfficiencyOf(facts.op_class, facts.dtype));
  double peak = peaks_.at(v1::FLOAT32), byte_share = efficiency;
  if (BoundByPeak(facts.op_class)) {
    auto found = peaks_.find(facts.dtype);
    if (found == peaks_.end() || !(found->second > 0)) {
      return FieldError("device.peak_flops", v1::DType_Name(facts.dtype), absl::StrCat(device_.type(), " has no peak for it"));
    }
    peak = found->second;
    byte_share = *EfficiencyOf(OpClass::kElementwise, facts.dtype);
  }
  double arithmetic = facts.flops / (peak * efficiency);
  double traffic = static_cast<double>(facts.bytes()) / (device_.memory_bandwidth_bytes_per_second() * byte_share);
  return std::max({device_.kernel_launch_seconds(), arithmetic, traffic});
}

absl::StatusOr<Cost> RooflineModel::Time(const graph::Trace& trace, const graph::Instruction& instruction) const {
  graph::InstructionView op(trace, instruction);
  const OperatorRow* row = FindOperator(op.name());
  if (row == nullptr) {
    return absl::NotFoundError(
        absl::StrCat("operator ", op.name(), " is not known to the cost models; add its row to operator_table.cc"));
  }
  auto seconds = Seconds(FactsOf(op, *row));
  if (!seconds.ok()) return Annotate(seconds.status(), op.name());
  return Cost{*seconds, "roofline"};
}

absl::StatusOr<Cost> BenchmarkModel::Time(const graph::Trace& trace, const graph::Instruction& instruction) const {
  std::string signature = SignatureOf(graph::InstructionView(trace, instruction));
  if (const double* seconds = table_->Find(signature)) return Cost{*seconds, "benchmark"};
  return absl::NotFoundError(absl::StrCat("no measurement of ", signature));
}

}  // namespace legoai::sim
