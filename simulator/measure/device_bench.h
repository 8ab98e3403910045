// Times work on one device, a GPU or this host's CPU, and the figures that belong to no operator: launch, dispatch, bandwidth,
// clocks under load.
//
// An operator's inputs are not in the device's cache when it runs: before each run a buffer several times as large as the
// last-level cache is overwritten. Rotating buffers would do the same, but take several times the memory of each point, and the
// largest points would not fit. The overwriting also keeps the device busy until the host has enqueued the timed work; otherwise
// a short operator would take as long as the host needs to launch it. If the host needs longer, the buffer is overwritten several
// times.
//
// Not thread-safe; blocking. Seconds, bytes. Errors: the device's own, as Internal, Unavailable or ResourceExhausted.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/legoai/v1/calibration.pb.h"
#include "worker/comm/streams.h"

namespace legoai::sim {

struct Spread {
  double median = 0, p10 = 0, p90 = 0;
  int64_t runs = 0;
};
// Of at least one number; interpolates linearly.
Spread SpreadOf(std::vector<double> seconds);

struct RunLimits {
  int64_t least = 5, most = 25;
  double seconds = 0.04;  // beyond this, only `least` runs
};

class DeviceBench {
 public:
  using Work = std::function<absl::Status()>;

  static absl::StatusOr<std::unique_ptr<DeviceBench>> Create(c10::Device device, std::unique_ptr<comm::DeviceTimer> timer,
                                                             bool quick);

  c10::Device device() const { return device_; }
  int64_t flush_bytes() const { return flush_.nbytes(); }
  double timer_seconds() const { return timer_seconds_; }

  // Runs `work`, which enqueues work on the device, twice to warm up and then within the limits.
  absl::StatusOr<Spread> Time(const Work& work, const RunLimits& limits = {});

  // Time per operator of many tiny ones.
  absl::StatusOr<double> LaunchSeconds();
  // Fills host_dispatch: the host's time to enqueue operators without waiting.
  absl::Status MeasureDispatch(v1::Calibration* calibration);
  // Fills memory: the device's own bandwidth, and that to the host unless it is a CPU.
  absl::Status MeasureMemory(v1::Calibration* calibration);
  // Adds a square matrix product that runs for this long.
  absl::Status MeasureSustained(v1::DType dtype, double seconds, v1::Calibration* calibration);

 private:
  DeviceBench(c10::Device device, std::unique_ptr<comm::DeviceTimer> timer, bool quick)
      : device_(device), timer_(std::move(timer)), quick_(quick) {}
  absl::Status Begin();
  // Keeps the device busy for at least this long.
  void Cover(double seconds);
  // Device time of one run, with the device kept busy for `host_seconds` first.
  absl::StatusOr<double> Once(const Work& work, double host_seconds);
  // Host time per call of `count` calls that do not wait; the device is idle before and after.
  absl::StatusOr<double> HostSeconds(const Work& work, int64_t count);
  absl::Status AddMemory(const char* name, int64_t bytes, const Work& work, v1::Calibration* calibration);
  absl::Status MeasureTransfers(v1::Calibration* calibration);
  at::TensorOptions Options() const;

  const c10::Device device_;
  const std::unique_ptr<comm::DeviceTimer> timer_;
  const bool quick_;
  at::Tensor flush_;
  double flush_seconds_ = 0, timer_seconds_ = 0;
};

}  // namespace legoai::sim
