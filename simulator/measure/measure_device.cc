#include "simulator/measure/calibration_run.h"

#include <ATen/Parallel.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <torch/version.h>

#include <chrono>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "core/hardware/host.h"
#include "core/hardware/nvml.h"
#include "core/process/build_version.h"
#include "core/process/host_resources.h"
#include "proto/errors.h"
#include "proto/status.h"
#include "simulator/measure/operator_grid.h"
#include "worker/comm/cuda_plugin.h"
#include "worker/comm/status_error.h"

namespace legoai::sim {
namespace {

constexpr int64_t kGiB = int64_t{1} << 30;
// Beside a point's tensors: workspaces of cuBLAS and attention, what the allocator's blocks lose, the buffer that clears the
// cache.
constexpr int64_t kGpuMargin = 3 * kGiB;

double Now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

// One that a calibration can be made of.
struct Subject {
  c10::Device device = c10::Device(c10::kCPU);
  const comm::CudaPlugin* plugin = nullptr;  // null on CPU
  int64_t memory_bytes = 0;
};

absl::Status CheckOptions(const MeasureOptions& options) {
  if (options.device != "cuda" && options.device != "cpu") return FieldError("--device", options.device, "must be cuda or cpu");
  if (options.device == "cpu" && !options.quick) {
    return FieldError("--device", "cpu",
                      "is for trying the program, with --quick; `lego hardware --measure` measures this machine's CPU");
  }
  if (!(options.seconds > 0 && options.seconds <= 86400)) {
    return FieldError("--seconds", absl::StrCat(options.seconds), "must be positive and at most a day");
  }
  return absl::OkStatus();
}

absl::StatusOr<Subject> OpenDevice(const std::string& name) {
  Subject subject;
  if (name == "cpu") {
    at::set_num_threads(1);
    subject.memory_bytes = launch::HostMemoryBytes() / 4;
    return subject;
  }
  ASSIGN_OR_RETURN(const auto plugin, comm::LoadCudaPlugin());
  subject.plugin = plugin;
  subject.device = c10::Device(c10::kCUDA, 0);
  RETURN_IF_ERROR(subject.plugin->select_device(0));
  const absl::Status status = comm::CatchStatus([&] {
    const auto free = static_cast<int64_t>(c10::getDeviceAllocator(c10::kCUDA)->getMemoryInfo(0).first);
    subject.memory_bytes = std::max<int64_t>(free - kGpuMargin, 0);
    return absl::OkStatus();
  });
  if (!status.ok()) return status;
  return subject;
}

// The one that CUDA calls its first; nothing where the driver's library does not say.
std::optional<Gpu> GpuOf(const comm::CudaPlugin& plugin, const NvmlReport& report) {
  for (const Gpu& gpu : report.gpus) {
    if (plugin.device_of_uuid(gpu.uuid.c_str()) == 0) return gpu;
  }
  return std::nullopt;
}

void DescribeGpu(const comm::CudaPlugin& plugin, v1::Calibration* calibration) {
  auto* provenance = calibration->mutable_provenance();
  for (const auto& [name, value] : plugin.describe(0)) {
    if (name == "card") provenance->set_card(value);
    if (name != "card") (*provenance->mutable_libraries())[name] = value;
  }
  const auto report = ReadNvml();
  const auto gpu = report.ok() ? GpuOf(plugin, *report) : std::nullopt;
  if (!gpu) {
    auto* left_out = calibration->add_left_out();
    left_out->set_point("driver, clocks and power limit");
    left_out->set_why(report.ok() ? "NVML does not list the GPU" : std::string(report.status().message()));
    return;
  }
  provenance->set_driver(report->driver_version);
  provenance->set_memory_bytes(gpu->memory_bytes);
  provenance->set_power_limit_watts(gpu->power_limit_watts);
  provenance->set_max_sm_clock_mhz(gpu->max_sm_clock_mhz);
  provenance->set_max_memory_clock_mhz(gpu->max_memory_clock_mhz);
  provenance->set_sm_clock_before_mhz(gpu->sm_clock_mhz);
}

void Describe(const Subject& subject, v1::Calibration* calibration) {
  auto* provenance = calibration->mutable_provenance();
  provenance->set_kind(subject.plugin == nullptr ? v1::CPU : v1::CUDA);
  provenance->set_date(absl::FormatTime("%Y-%m-%d", absl::Now(), absl::UTCTimeZone()));
  provenance->set_host_processor(HostProcessor());
  provenance->set_build(std::string(launch::BuildVersion()));
  (*provenance->mutable_libraries())["torch"] = TORCH_VERSION;
  if (subject.plugin != nullptr) return DescribeGpu(*subject.plugin, calibration);
  provenance->set_card(HostProcessor());
  provenance->set_memory_bytes(launch::HostMemoryBytes());
}

// What load has made of the clock.
void DescribeEnd(const Subject& subject, v1::Calibration* calibration) {
  if (subject.plugin == nullptr) return;
  const auto report = ReadNvml();
  if (!report.ok()) return;
  if (const auto gpu = GpuOf(*subject.plugin, *report)) {
    calibration->mutable_provenance()->set_sm_clock_after_mhz(gpu->sm_clock_mhz);
  }
}

}  // namespace

absl::Status MeasureDevice(const MeasureOptions& options, const CalibrationProgress& progress, v1::Calibration* calibration) {
  const double began = Now();
  RETURN_IF_ERROR(CheckOptions(options));
  ASSIGN_OR_RETURN(const auto subject, OpenDevice(options.device));
  Describe(subject, calibration);
  const comm::CudaPlugin* plugin = subject.plugin;
  ASSIGN_OR_RETURN(
      auto bench,
      DeviceBench::Create(subject.device, plugin == nullptr ? comm::MakeHostTimer() : plugin->make_timer(), options.quick));
  const auto streams = [&] { return plugin == nullptr ? comm::MakeThreadStreams() : plugin->make_streams(); };
  const absl::Status status =
      RunCalibration(*bench, OperatorGrid(options.quick ? GridSize::kQuick : GridSize::kFull), streams,
                     {.seconds = options.seconds, .began = began, .quick = options.quick, .memory_bytes = subject.memory_bytes},
                     progress, calibration);
  DescribeEnd(subject, calibration);
  return status;
}

}  // namespace legoai::sim
