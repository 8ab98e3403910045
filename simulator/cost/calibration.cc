#include "simulator/cost/calibration.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "proto/enum_text.h"
#include "proto/errors.h"
#include "proto/status.h"
#include "simulator/cost/compute_cost.h"

namespace legoai::sim {
namespace {

// In the order of fitting.
constexpr OpClass kClasses[] = {OpClass::kElementwise, OpClass::kReduction, OpClass::kCopy,
                                OpClass::kOptimizer,   OpClass::kMatmul,    OpClass::kAttention};
constexpr uint64_t kHeldBackPercent = 15;
constexpr double kLaunchesOfAFittedPoint = 4;

struct Point {
  std::string name;  // of the operator
  OpFacts facts;
  double seconds = 0;
  bool held_back = false;
};
using Points = std::vector<Point>;

std::string NameOf(OpClass op_class, v1::DType dtype) { return absl::StrCat(OpClassName(op_class), " ", EnumText(dtype)); }

std::optional<OpClass> ClassOf(const std::string& name) {
  for (const OpClass op_class : kClasses) {
    if (name == OpClassName(op_class)) return op_class;
  }
  return std::nullopt;
}

// FNV-1a, so that the split is the same on every machine.
uint64_t Hash(const std::string& text) {
  uint64_t hash = 14695981039346656037ull;
  for (const unsigned char c : text) hash = (hash ^ c) * 1099511628211ull;
  return hash ^ hash >> 32;
}

// As FactsOf says it of the call that was measured (operator_grid.h): [m, k] by [k, n], by rows or by columns.
bool IsUnaligned(const v1::OperatorMeasurement& measured) {
  const auto& shape = measured.shape();
  const auto size = [&](const char* name) {
    const auto found = shape.find(name);
    return found == shape.end() ? 0 : found->second;
  };
  const int64_t m = size("m"), n = size("n"), k = size("k");
  if (measured.op_class() != OpClassName(OpClass::kMatmul) || m == 0 || n == 0 || k == 0) return false;
  const int64_t wide = measured.dtype() == v1::FLOAT32 ? 4 : 8;  // elements of 16 bytes
  const auto apart = [&](int64_t rows, int64_t columns, bool by_columns) {  // of one row there is no other
    return (by_columns ? columns : rows) <= 1 ? 0 : by_columns ? rows : columns;
  };
  return apart(m, k, size("a_by_columns") != 0) % wide != 0 || apart(k, n, size("b_by_columns") != 0) % wide != 0 ||
         apart(m, n, false) % wide != 0;
}

absl::StatusOr<std::map<std::pair<OpClass, v1::DType>, Points>> ReadPoints(const v1::Calibration& calibration) {
  std::map<std::pair<OpClass, v1::DType>, Points> groups;
  for (const auto& measured : calibration.operators()) {
    const auto op_class = ClassOf(measured.op_class());
    if (!op_class) return FieldError("operators.op_class", measured.op_class(), "is no class of operators that take time");
    const bool counted = measured.flops() >= 0 && measured.read_bytes() >= 0 && measured.written_bytes() >= 0;
    if (!(measured.seconds() > 0) || !std::isfinite(measured.seconds()) || !counted || !std::isfinite(measured.flops())) {
      return FieldError("operators.seconds", absl::StrCat(measured.seconds()),
                        absl::StrCat("no measurement of ", measured.operator_(), " has such numbers; measure again"));
    }
    Point point;
    point.name = measured.operator_();
    point.facts = {*op_class,           measured.dtype(),         measured.flops(),
                   measured.read_bytes(), measured.written_bytes(), IsUnaligned(measured)};
    point.seconds = measured.seconds();
    point.held_back = IsHeldBack(measured);
    groups[{*op_class, measured.dtype()}].push_back(point);
  }
  return groups;
}

// As RooflineModel looks it up.
double EfficiencyOf(const v1::Device& device, OpClass op_class, v1::DType dtype) {
  double found = 0;
  bool own = false;
  for (const auto& efficiency : device.efficiencies()) {
    if (efficiency.op_class() != OpClassName(op_class) || !efficiency.operator_().empty()) continue;
    if (efficiency.dtype() == dtype) found = efficiency.fraction(), own = true;
    if (efficiency.dtype() == v1::DTYPE_UNSPECIFIED && !own) found = efficiency.fraction();
  }
  return found;
}

void SetEfficiency(OpClass op_class, v1::DType dtype, double fraction, const std::string& source, v1::Device* device) {
  v1::Efficiency* entry = nullptr;
  for (auto& efficiency : *device->mutable_efficiencies()) {
    const bool of_class = efficiency.op_class() == OpClassName(op_class) && efficiency.operator_().empty();
    if (of_class && efficiency.dtype() == dtype) entry = &efficiency;
  }
  if (entry == nullptr) entry = device->add_efficiencies();
  entry->set_op_class(OpClassName(op_class));
  entry->set_dtype(dtype);
  entry->set_fraction(fraction);
  entry->set_source(source);
}

// log(predicted / measured) of those that are held back, or of the others that are long enough.
absl::StatusOr<std::vector<double>> LogErrors(const v1::Device& device, const Points& points, bool held_back) {
  ASSIGN_OR_RETURN(const auto model, RooflineModel::Create(device));
  const double shortest = held_back ? 0 : kLaunchesOfAFittedPoint * device.kernel_launch_seconds();
  std::vector<double> errors;
  for (const Point& point : points) {
    if (point.held_back != held_back || point.seconds < shortest) continue;
    ASSIGN_OR_RETURN(const auto predicted, model->Seconds(point.name, point.facts));
    errors.push_back(std::log(std::max(predicted, 1e-12) / point.seconds));
  }
  return errors;
}

PredictionError ErrorOf(const std::vector<double>& log_errors) {
  std::vector<double> relative;
  double squares = 0, within = 0;
  for (const double error : log_errors) {
    relative.push_back(std::abs(std::expm1(error)));
    squares += error * error;
    within += relative.back() <= 0.1;
  }
  std::sort(relative.begin(), relative.end());
  const double count = static_cast<double>(log_errors.size());
  return {Quantile(relative, 0.5), Quantile(relative, 0.9), within / count, std::sqrt(squares / count)};
}

// The efficiency in [least, most] with the least sum of |log error|, in steps of a factor. The sum has several valleys, where
// points go over from arithmetic to traffic, so all of it is looked at.
absl::StatusOr<double> Search(v1::Device device, OpClass op_class, v1::DType dtype, const Points& points, double least,
                              double most, double factor) {
  double best = least, best_sum = HUGE_VAL;
  for (double efficiency = least; efficiency <= most; efficiency *= factor) {
    SetEfficiency(op_class, dtype, efficiency, "", &device);
    ASSIGN_OR_RETURN(const auto errors, LogErrors(device, points, /*held_back=*/false));
    double sum = 0;
    for (const double error : errors) sum += std::abs(error);
    if (sum < best_sum) best = efficiency, best_sum = sum;
  }
  return best;
}

absl::StatusOr<double> FitEfficiency(const v1::Device& device, OpClass op_class, v1::DType dtype, const Points& points) {
  constexpr double kCoarse = 1.02, kFine = 1.001;
  ASSIGN_OR_RETURN(const auto near, Search(device, op_class, dtype, points, 0.002, 100, kCoarse));
  return Search(device, op_class, dtype, points, near / kCoarse, near * kCoarse, kFine);
}

// What is measured of float32 holds for every type that has no figure of its own.
v1::DType EntryOf(v1::DType dtype) { return dtype == v1::FLOAT32 ? v1::DTYPE_UNSPECIFIED : dtype; }

bool BoundByPeak(OpClass op_class) { return op_class == OpClass::kMatmul || op_class == OpClass::kAttention; }

// `device` with entries such that setting one type's efficiency leaves the others as they are assumed.
v1::Device WithEntriesByType(v1::Device device) {
  for (const OpClass op_class : kClasses) {
    std::vector<v1::DType> own;
    if (op_class != OpClass::kOptimizer) own.push_back(v1::BFLOAT16);  // the optimizer's masters are float32
    if (BoundByPeak(op_class)) own.push_back(v1::FLOAT16);
    own.push_back(v1::FLOAT32);
    std::string source;
    for (const auto& efficiency : device.efficiencies()) {
      if (efficiency.op_class() == OpClassName(op_class) && efficiency.dtype() == v1::DTYPE_UNSPECIFIED)
        source = efficiency.source();
    }
    for (const v1::DType dtype : own) {
      const double fraction = EfficiencyOf(device, op_class, dtype);
      const auto has = [&](const auto& e) { return e.op_class() == OpClassName(op_class) && e.dtype() == dtype; };
      auto* entries = device.mutable_efficiencies();
      const bool there = std::any_of(entries->begin(), entries->end(), has);
      if (dtype == v1::FLOAT32) {
        if (there) SetEfficiency(op_class, v1::DTYPE_UNSPECIFIED, fraction, source, &device);
        entries->erase(std::remove_if(entries->begin(), entries->end(), has), entries->end());
      } else if (!there) {
        SetEfficiency(op_class, dtype, fraction, source, &device);
      }
    }
  }
  return device;
}

v1::Device WithoutCurves(v1::Device device) {
  auto* entries = device.mutable_efficiencies();
  const auto is_curve = [](const v1::Efficiency& efficiency) { return !efficiency.operator_().empty(); };
  entries->erase(std::remove_if(entries->begin(), entries->end(), is_curve), entries->end());
  return device;
}

class Fitter {
 public:
  Fitter(const v1::Calibration& calibration, const v1::Device& assumed) : calibration_(calibration), assumed_(assumed) {
    result_.device = WithEntriesByType(WithoutCurves(assumed));
    const auto& provenance = calibration.provenance();
    measured_on_ = absl::StrCat("measured on ", provenance.card().empty() ? "an unnamed card" : provenance.card(), ", ",
                                provenance.date(), provenance.quick() ? ", shapes too small to rely on" : "");
  }

  absl::StatusOr<DeviceFit> Run() {
    SetFigures();
    ASSIGN_OR_RETURN(auto groups, ReadPoints(calibration_));
    for (const OpClass op_class : kClasses) {
      for (const v1::DType dtype : {v1::FLOAT32, v1::BFLOAT16, v1::FLOAT16}) {
        if (absl::Status status = FitGroup(op_class, dtype, groups[{op_class, dtype}]); !status.ok()) return status;
      }
    }
    for (const auto& [group, points] : groups) RETURN_IF_ERROR(FitCurves(points));
    if (result_.fits.empty()) {
      return FieldError("operators", absl::StrCat(calibration_.operators_size()),
                        absl::StrCat("no class of operators has points enough to fit an efficiency on: ", FirstNote()));
    }
    RETURN_IF_ERROR(TellErrors(groups));
    SetSources();
    return std::move(result_);
  }

 private:
  std::string FirstNote() const { return result_.notes.empty() ? "there are none" : result_.notes.front(); }

  // What is measured outright.
  void SetFigures() {
    if (calibration_.kernel_launch_seconds() > 0) {
      result_.device.set_kernel_launch_seconds(calibration_.kernel_launch_seconds());
    }
    if (calibration_.eager_dispatch_seconds() > 0) {
      result_.device.set_host_dispatch_seconds(calibration_.eager_dispatch_seconds());
    }
  }

  bool HasPeak(OpClass op_class, v1::DType dtype, const Points& points) {
    const auto& peaks = assumed_.peak_flops();
    const bool known = std::any_of(peaks.begin(), peaks.end(), [&](const auto& peak) { return peak.dtype() == dtype; });
    if (known || points.empty() || !BoundByPeak(op_class)) return true;
    result_.notes.push_back(absl::StrCat(NameOf(op_class, dtype), " was measured, and ", assumed_.type(), " has no peak for it"));
    return false;
  }

  bool HasEnough(OpClass op_class, v1::DType dtype, const Points& points) {
    const double shortest = kLaunchesOfAFittedPoint * result_.device.kernel_launch_seconds();
    int64_t held_back = 0, fitted = 0;
    for (const Point& point : points) {
      held_back += point.held_back;
      fitted += !point.held_back && point.seconds >= shortest;
    }
    if (fitted >= kLeastFitted && held_back >= kLeastHeldBack) return true;
    if (points.empty()) return false;
    const int64_t missed = calibration_.points_not_reached();
    result_.notes.push_back(
        absl::StrCat(NameOf(op_class, dtype), " has ", points.size(), " points, ", fitted, " of them to fit on and ", held_back,
                     " held back; it needs ", kLeastFitted, " and ", kLeastHeldBack, ", and keeps what is assumed",
                     missed > 0 ? absl::StrCat(": ", missed, " points of the grid were not reached, so measure longer") : ""));
    return false;
  }

  absl::Status FitGroup(OpClass op_class, v1::DType dtype, const Points& points) {
    if (!HasPeak(op_class, dtype, points) || !HasEnough(op_class, dtype, points)) return absl::OkStatus();
    ClassFit fit{.op_class = op_class, .dtype = dtype, .points = std::ssize(points)};
    for (const Point& point : points) fit.held_back += point.held_back;
    fit.assumed = EfficiencyOf(assumed_, op_class, dtype);
    ASSIGN_OR_RETURN(const auto measured, FitEfficiency(result_.device, op_class, EntryOf(dtype), points));
    fit.measured = measured;
    ASSIGN_OR_RETURN(const auto before, LogErrors(assumed_, points, /*held_back=*/true));
    fit.assumed_error = ErrorOf(before);
    SetEfficiency(op_class, EntryOf(dtype), fit.measured, "", &result_.device);
    if (fit.measured > 1) result_.notes.push_back(AboveOne(fit));
    result_.fits.push_back(fit);
    return absl::OkStatus();
  }

  // Curves of those operators of one class and type of whose calls they tell more than the class's efficiency does.
  absl::Status FitCurves(const Points& points) {
    std::map<std::pair<std::string, bool>, Points> by_operator;
    for (const Point& point : points) {
      if (!point.held_back && LeastSeconds(point.facts) > 0) by_operator[{point.name, point.facts.unaligned}].push_back(point);
    }
    for (const auto& [key, of_operator] : by_operator) {
      ASSIGN_OR_RETURN(const auto without, LogErrors(result_.device, of_operator, /*held_back=*/false));
      if (std::ssize(without) < kLeastOfACurve) continue;
      *result_.device.add_efficiencies() = CurveOf(of_operator);
      ASSIGN_OR_RETURN(const auto with, LogErrors(result_.device, of_operator, /*held_back=*/false));
      if (MeanSize(without) - MeanSize(with) < kWorthACurve) result_.device.mutable_efficiencies()->RemoveLast();
    }
    return absl::OkStatus();
  }

  static double MeanSize(const std::vector<double>& errors) {
    double sum = 0;
    for (const double error : errors) sum += std::abs(error);
    return sum / static_cast<double>(errors.size());
  }

  // As many digits as a measurement has: people read the file.
  static double Rounded(double value) { return std::strtod(absl::StrFormat("%.4g", value).c_str(), nullptr); }

  // Of calls of one operator: the median share of each factor of two of the least time.
  v1::Efficiency CurveOf(const Points& points) const {
    v1::Efficiency entry;
    entry.set_op_class(OpClassName(points.front().facts.op_class));
    entry.set_dtype(points.front().facts.dtype);
    entry.set_operator_(points.front().name);
    entry.set_unaligned(points.front().facts.unaligned);
    std::map<int64_t, std::pair<std::vector<double>, std::vector<double>>> octaves;  // log2 of least seconds, and of shares
    for (const Point& point : points) {
      const double least = LeastSeconds(point.facts);
      auto& [places, shares] = octaves[std::llround(std::log2(least))];
      places.push_back(std::log2(least));
      shares.push_back(std::log2(least / point.seconds));
    }
    for (auto& [_, octave] : octaves) {
      auto& [places, shares] = octave;
      std::sort(shares.begin(), shares.end());
      const double least = Rounded(std::exp2(std::accumulate(places.begin(), places.end(), 0.0) / std::ssize(places)));
      if (entry.curve_size() > 0 && !(least > entry.curve().rbegin()->least_seconds())) continue;  // at the edge of two octaves
      auto* at = entry.add_curve();
      at->set_least_seconds(least);
      at->set_fraction(Rounded(std::exp2(Quantile(shares, 0.5))));
    }
    entry.set_fraction(entry.curve().rbegin()->fraction());
    entry.set_source(absl::StrCat(measured_on_, ", ", points.size(), " points"));
    return entry;
  }

  double LeastSeconds(const OpFacts& facts) const {
    double peak = 0;
    for (const auto& one : assumed_.peak_flops()) {
      if (one.dtype() == (BoundByPeak(facts.op_class) ? facts.dtype : v1::FLOAT32)) peak = one.flops_per_second();
    }
    if (!(peak > 0)) return 0;  // HasPeak has said so
    return std::max(facts.flops / peak, static_cast<double>(facts.bytes()) / assumed_.memory_bandwidth_bytes_per_second());
  }

  // With the curves, on points that neither they nor the efficiencies have seen.
  absl::Status TellErrors(const std::map<std::pair<OpClass, v1::DType>, Points>& groups) {
    for (ClassFit& fit : result_.fits) {
      ASSIGN_OR_RETURN(const auto after, LogErrors(result_.device, groups.at({fit.op_class, fit.dtype}), /*held_back=*/true));
      fit.measured_error = ErrorOf(after);
      const std::string source = absl::StrCat(measured_on_, absl::StrFormat(", %d points, held-out median error %.1f %%",
                                                                           fit.points, 100 * fit.measured_error.median));
      SetEfficiency(fit.op_class, EntryOf(fit.dtype), fit.measured, source, &result_.device);
    }
    return absl::OkStatus();
  }

  std::string AboveOne(const ClassFit& fit) const {
    return absl::StrCat(NameOf(fit.op_class, fit.dtype), " reaches ", absl::StrFormat("%.2f", fit.measured), " of the ",
                        BoundByPeak(fit.op_class) ? "peak" : "memory bandwidth", " that ", assumed_.type(),
                        " is given: that figure is too low for this card, or the card is of another type");
  }

  // Measured figures have measured sources.
  void SetSources() {
    auto* sources = result_.device.mutable_sources();
    sources->erase(std::remove_if(sources->begin(), sources->end(),
                                  [](const std::string& source) {
                                    return absl::StrContains(source, "kernel_launch_seconds") ||
                                           absl::StrContains(source, "host_dispatch_seconds");
                                  }),
                   sources->end());
    const auto add = [&](const char* field, double measured, double kept) {
      result_.device.add_sources(measured > 0 ? absl::StrCat(field, ": ", measured_on_)
                                              : absl::StrCat("assumption: ", field, " ", kept, ", which was not measured"));
    };
    add("kernel_launch_seconds", calibration_.kernel_launch_seconds(), assumed_.kernel_launch_seconds());
    add("host_dispatch_seconds", calibration_.eager_dispatch_seconds(), assumed_.host_dispatch_seconds());
    for (const auto& memory : calibration_.memory()) {
      result_.device.add_sources(
          absl::StrFormat("%s: %.4g bytes per second, %s", memory.name(), memory.bytes_per_second(), measured_on_));
    }
  }

  static constexpr int64_t kLeastOfACurve = 6;
  static constexpr double kWorthACurve = 0.02;  // of log(predicted / measured): less may be its points' noise

  const v1::Calibration& calibration_;
  const v1::Device& assumed_;
  DeviceFit result_;
  std::string measured_on_;
};

absl::Status CheckIsOf(const v1::Calibration& calibration, const v1::Device& device) {
  const auto& provenance = calibration.provenance();
  if (provenance.kind() != device.kind()) {
    return FieldError("device", device.type(),
                      absl::StrCat("the calibration is of a ", EnumText(provenance.kind()), " device (", provenance.card(), ")"));
  }
  // NVML's and CUDA's figure of one card differ by what the driver keeps.
  constexpr double kTolerance = 0.03;
  const double memory = static_cast<double>(provenance.memory_bytes()), expected = static_cast<double>(device.memory_bytes());
  if (device.kind() == v1::CUDA && memory > 0 && std::abs(memory / expected - 1) > kTolerance) {
    return FieldError("device", device.type(),
                      absl::StrFormat("the calibration is of %s with %.1f GiB, and this type has %.1f GiB", provenance.card(),
                                      memory / (1 << 30), expected / (1 << 30)));
  }
  return absl::OkStatus();
}

}  // namespace

bool IsHeldBack(const v1::OperatorMeasurement& measurement) {
  std::string text = absl::StrCat(measurement.operator_(), " ", static_cast<int>(measurement.dtype()));
  const std::map<std::string, int64_t> sorted(measurement.shape().begin(), measurement.shape().end());
  for (const auto& [name, size] : sorted) absl::StrAppend(&text, " ", name, "=", size);
  return Hash(text) % 100 < kHeldBackPercent;
}

absl::StatusOr<DeviceFit> FitDevice(const v1::Calibration& calibration, const v1::Device& assumed) {
  RETURN_IF_ERROR(CheckIsOf(calibration, assumed));
  if (const auto model = RooflineModel::Create(assumed); !model.ok()) return model.status();
  return Fitter(calibration, assumed).Run();
}

}  // namespace legoai::sim
