#include "simulator/measure/calibration_run.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/errors.h"
#include "proto/status.h"
#include "simulator/measure/eager_overhead.h"
#include "simulator/measure/grid_runner.h"

namespace legoai::sim {
namespace {

// A sticky error of the device fails everything that follows.
constexpr int kMostFailuresInARow = 8;

double Now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

void LeaveOut(const std::string& point, const std::string& why, v1::Calibration* calibration) {
  auto* left_out = calibration->add_left_out();
  left_out->set_point(point);
  left_out->set_why(why);
}

class Run {
 public:
  Run(DeviceBench& bench, const CalibrationOptions& options, const CalibrationProgress& progress, v1::Calibration* calibration)
      : bench_(bench),
        options_(options),
        progress_(progress),
        calibration_(calibration),
        end_((options.began > 0 ? options.began : Now()) + options.seconds) {}

  absl::Status MeasureFigures(const std::function<std::unique_ptr<comm::Streams>()>& streams) {
    calibration_->set_timer_seconds(bench_.timer_seconds());
    const auto launch = bench_.LaunchSeconds();
    if (!launch.ok()) return Annotate(launch.status(), "the smallest operator");
    calibration_->set_kernel_launch_seconds(*launch);
    Tell("launch of a kernel");
    if (absl::Status status = bench_.MeasureDispatch(calibration_); !status.ok()) return Annotate(status, "dispatch");
    Tell("dispatch by the host");
    if (absl::Status status = bench_.MeasureMemory(calibration_); !status.ok()) return Annotate(status, "memory bandwidth");
    Tell("memory bandwidth");
    const auto eager = MeasureEagerDispatch(bench_.device(), streams());
    if (eager.ok()) calibration_->set_eager_dispatch_seconds(*eager);
    if (!eager.ok()) LeaveOut("eager step", std::string(eager.status().message()), calibration_);
    Tell("dispatch in an eager step");
    return MeasureLoad();
  }

  absl::Status MeasurePoints(const std::vector<GridPoint>& points) {
    calibration_->set_points_planned(std::ssize(points));
    int failures = 0;
    for (size_t i = 0; i < points.size(); ++i) {
      calibration_->set_points_not_reached(std::ssize(points) - static_cast<int64_t>(i));
      if (Now() >= end_) return absl::OkStatus();
      const absl::Status status = MeasurePoint(points[i]);
      if (!status.ok()) LeaveOut(PointName(points[i]), std::string(status.message()), calibration_);
      failures = status.ok() || absl::IsResourceExhausted(status) ? 0 : failures + 1;
      if (failures == kMostFailuresInARow) return Annotate(status, absl::StrCat("the last of ", failures, " points that failed"));
      calibration_->set_points_not_reached(std::ssize(points) - static_cast<int64_t>(i) - 1);
      Tell(absl::StrCat(i + 1, " of ", points.size(), " points: ", PointName(points[i])));
    }
    return absl::OkStatus();
  }

 private:
  void Tell(const std::string& what) {
    if (progress_) progress_(*calibration_, what);
  }

  // Before the grid, which then finds the device warm, as a training step does.
  absl::Status MeasureLoad() {
    for (const auto& [dtype, share, most] : {std::tuple{v1::BFLOAT16, 0.03, 4.0}, {v1::FLOAT32, 0.015, 2.0}}) {
      const double seconds = options_.quick ? 0.02 : std::min(share * options_.seconds, most);
      if (absl::Status status = bench_.MeasureSustained(dtype, seconds, calibration_); !status.ok()) {
        return Annotate(status, "products without pauses");
      }
    }
    Tell("products without pauses");
    return absl::OkStatus();
  }

  absl::Status MeasurePoint(const GridPoint& point) {
    ASSIGN_OR_RETURN(const auto facts, FactsOfPoint(point));
    if (facts.tensor_bytes > options_.memory_bytes) {
      return absl::ResourceExhaustedError(absl::StrCat("needs ", facts.tensor_bytes, " bytes for its tensors, and there are ",
                                                       options_.memory_bytes, " for them"));
    }
    ASSIGN_OR_RETURN(auto call, PointCall::Create(point, bench_.device()));
    const auto spread = bench_.Time([&] { return call->Run(); });
    if (!spread.ok()) return spread.status();
    Add(point, facts.facts, *spread);
    return absl::OkStatus();
  }

  void Add(const GridPoint& point, const OpFacts& facts, const Spread& spread) {
    auto* measured = calibration_->add_operators();
    measured->set_operator_(absl::StrCat(point.call.name, point.call.overload.empty() ? "" : ".", point.call.overload));
    measured->set_op_class(OpClassName(facts.op_class));
    measured->set_dtype(facts.dtype);
    for (const auto& [name, size] : point.shape) (*measured->mutable_shape())[name] = size;
    measured->set_use(point.use);
    measured->set_flops(facts.flops);
    measured->set_read_bytes(facts.read_bytes);
    measured->set_written_bytes(facts.written_bytes);
    measured->set_seconds(spread.median);
    measured->set_seconds_p10(spread.p10);
    measured->set_seconds_p90(spread.p90);
    measured->set_runs(spread.runs);
  }

  DeviceBench& bench_;
  const CalibrationOptions& options_;
  const CalibrationProgress& progress_;
  v1::Calibration* const calibration_;
  const double end_;
};

}  // namespace

absl::Status RunCalibration(DeviceBench& bench, const std::vector<GridPoint>& points,
                            const std::function<std::unique_ptr<comm::Streams>()>& streams, const CalibrationOptions& options,
                            const CalibrationProgress& progress, v1::Calibration* calibration) {
  const double began = options.began > 0 ? options.began : Now();
  Run run(bench, options, progress, calibration);
  absl::Status status = run.MeasureFigures(streams);
  if (status.ok()) status = run.MeasurePoints(points);
  auto* provenance = calibration->mutable_provenance();
  provenance->set_seconds(Now() - began);
  provenance->set_quick(options.quick);
  provenance->set_cache_flush_bytes(bench.flush_bytes());
  return status;
}

}  // namespace legoai::sim
