#include "simulator/measure/device_bench.h"

#include <ATen/ops/_softmax.h>
#include <ATen/ops/add.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/sum.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/status.h"
#include "simulator/cost/calibration.h"
#include "worker/comm/status_error.h"
#include "worker/graph/ivalue_constant.h"

namespace legoai::sim {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;
// More than twice the last cache of any GPU of the catalog (B200: 126 MB); of a CPU it is a compromise, whose caches differ.
constexpr int64_t kGpuFlushBytes = 256 * kMiB, kCpuFlushBytes = 64 * kMiB, kQuickFlushBytes = 4 * kMiB;
constexpr double kMostCoverSeconds = 0.2;  // an operator that keeps the host longer waits for the device itself

double Now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

// `work` in a form that gives no status.
DeviceBench::Work Always(std::function<void()> work) {
  return [work = std::move(work)] {
    return comm::CatchStatus([&] {
      work();
      return absl::OkStatus();
    });
  };
}

}  // namespace

Spread SpreadOf(std::vector<double> seconds) {
  std::sort(seconds.begin(), seconds.end());
  return {Quantile(seconds, 0.5), Quantile(seconds, 0.1), Quantile(seconds, 0.9), static_cast<int64_t>(seconds.size())};
}

absl::StatusOr<std::unique_ptr<DeviceBench>> DeviceBench::Create(c10::Device device, std::unique_ptr<comm::DeviceTimer> timer,
                                                                 bool quick) {
  std::unique_ptr<DeviceBench> bench(new DeviceBench(device, std::move(timer), quick));
  const absl::Status status = comm::CatchStatus([&] { return bench->Begin(); });
  if (!status.ok()) return status;
  return bench;
}

at::TensorOptions DeviceBench::Options() const { return at::TensorOptions().device(device_); }

absl::Status DeviceBench::Begin() {
  const int64_t bytes = quick_ && device_.is_cpu() ? kQuickFlushBytes : device_.is_cpu() ? kCpuFlushBytes : kGpuFlushBytes;
  flush_ = at::empty({bytes}, Options().dtype(at::kByte));
  constexpr int kRuns = 9;
  std::vector<double> flushes, nothing;
  for (int i = 0; i <= kRuns; ++i) {
    auto flushed = Once(
        [&] {
          flush_.zero_();
          return absl::OkStatus();
        },
        0);
    if (!flushed.ok()) return flushed.status();
    flush_seconds_ = std::max(*flushed, 1e-6);
    auto empty = Once([] { return absl::OkStatus(); }, flush_seconds_);
    if (!empty.ok()) return empty.status();
    if (i == 0) continue;  // the first one loads kernels
    flushes.push_back(*flushed);
    nothing.push_back(*empty);
  }
  flush_seconds_ = std::max(SpreadOf(flushes).median, 1e-6);
  timer_seconds_ = SpreadOf(nothing).median;
  return absl::OkStatus();
}

void DeviceBench::Cover(double seconds) {
  const double most = std::min(seconds, kMostCoverSeconds);
  for (double covered = 0; covered < most; covered += flush_seconds_) flush_.zero_();
}

absl::StatusOr<double> DeviceBench::Once(const Work& work, double host_seconds) {
  // On a CPU there is nothing to wait for: once, for the cache.
  if (host_seconds > 0) Cover(device_.is_cpu() ? flush_seconds_ / 2 : std::max(1.5 * host_seconds, flush_seconds_ / 2));
  absl::Status status = timer_->Start();
  if (status.ok()) status = work();
  auto seconds = timer_->Stop();
  if (!status.ok()) return status;
  return seconds;
}

absl::StatusOr<Spread> DeviceBench::Time(const Work& work, const RunLimits& limits) {
  constexpr int kWarmUp = 2;
  double host_seconds = 0;
  for (int i = 0; i < kWarmUp; ++i) {
    const double begin = Now();
    RETURN_IF_ERROR(work());
    host_seconds = std::max(Now() - begin, 1e-5);
  }
  std::vector<double> runs;
  const double begin = Now();
  while (std::ssize(runs) < limits.least || (std::ssize(runs) < limits.most && Now() - begin < limits.seconds)) {
    ASSIGN_OR_RETURN(auto seconds, Once(work, host_seconds));
    runs.push_back(seconds);
  }
  return SpreadOf(std::move(runs));
}

absl::StatusOr<double> DeviceBench::HostSeconds(const Work& work, int64_t count) {
  absl::Status status = timer_->Start();
  const double begin = Now();
  for (int64_t i = 0; i < count && status.ok(); ++i) status = work();
  const double seconds = (Now() - begin) / static_cast<double>(count);
  const auto stopped = timer_->Stop();
  if (!status.ok()) return status;
  if (!stopped.ok()) return stopped.status();
  return seconds;
}

absl::StatusOr<double> DeviceBench::LaunchSeconds() {
  constexpr int64_t kOperators = 200;  // fewer than fill the device's queue
  constexpr int kRuns = 9;
  at::Tensor x;
  const Work one = Always([&] { x.add_(1); });
  const Work all = [&] {
    absl::Status status;
    for (int64_t i = 0; i < kOperators && status.ok(); ++i) status = one();
    return status;
  };
  absl::Status made = Always([&] { x = at::ones({32}, Options()); })();
  if (!made.ok()) return made;
  std::vector<double> runs;
  for (int i = 0; i <= kRuns; ++i) {
    ASSIGN_OR_RETURN(auto host, HostSeconds(one, kOperators));
    ASSIGN_OR_RETURN(auto seconds, Once(all, host * kOperators));
    if (i > 0) runs.push_back(std::max(seconds - timer_seconds_, 0.0) / kOperators);
  }
  return SpreadOf(std::move(runs)).median;
}

absl::Status DeviceBench::MeasureDispatch(v1::Calibration* calibration) {
  constexpr int64_t kCalls = 200;
  constexpr int kRuns = 15;
  at::Tensor a, b, out;
  absl::Status status = Always([&] {
    a = at::ones({8, 8}, Options());
    b = at::ones({8, 8}, Options());
    out = at::empty({8, 8}, Options());
  })();
  const std::vector<std::pair<const char*, Work>> operators = {
      {"aten::add.out", Always([&] { at::add_out(out, a, b); })},
      {"aten::add.Tensor", Always([&] { at::add(a, b); })},
      {"aten::mul.Tensor", Always([&] { at::mul(a, b); })},
      {"aten::copy_", Always([&] { out.copy_(a); })},
      {"aten::mm", Always([&] { at::mm(a, b); })},
      {"aten::_softmax", Always([&] { at::_softmax(a, 1, false); })},
      {"aten::sum.dim_IntList", Always([&] { at::sum(a, at::IntArrayRef({0})); })}};
  for (const auto& [name, work] : operators) {
    std::vector<double> runs;
    for (int i = 0; i <= kRuns && status.ok(); ++i) {
      auto seconds = HostSeconds(work, kCalls);
      status = seconds.status();
      if (status.ok() && i > 0) runs.push_back(*seconds);
    }
    if (!status.ok()) return status;
    auto* dispatch = calibration->add_host_dispatch();
    dispatch->set_operator_(name);
    dispatch->set_seconds(SpreadOf(std::move(runs)).median);
  }
  return status;
}

absl::Status DeviceBench::AddMemory(const char* name, int64_t bytes, const Work& work, v1::Calibration* calibration) {
  const auto spread = Time(work, {.least = 5, .most = 15, .seconds = 0.3});
  if (!spread.ok()) return spread.status();
  auto* memory = calibration->add_memory();
  memory->set_name(name);
  memory->set_bytes(bytes);
  memory->set_seconds(spread->median);
  memory->set_bytes_per_second(static_cast<double>(bytes) / std::max(spread->median, 1e-9));
  return absl::OkStatus();
}

absl::Status DeviceBench::MeasureMemory(v1::Calibration* calibration) {
  const int64_t bytes = quick_ ? 16 * kMiB : 1024 * kMiB, elements = bytes / int64_t{sizeof(float)};
  at::Tensor from, to, sum;
  absl::Status status = Always([&] {
    from = at::ones({elements}, Options());
    to = at::empty({elements}, Options());
  })();
  if (status.ok()) status = AddMemory("copy", 2 * bytes, Always([&] { to.copy_(from); }), calibration);
  if (status.ok()) status = AddMemory("read", bytes, Always([&] { sum = at::sum(from); }), calibration);
  if (status.ok()) status = AddMemory("write", bytes, Always([&] { to.zero_(); }), calibration);
  if (!status.ok() || device_.is_cpu()) return status;
  return MeasureTransfers(calibration);
}

absl::Status DeviceBench::MeasureTransfers(v1::Calibration* calibration) {
  const int64_t bytes = quick_ ? 16 * kMiB : 256 * kMiB;
  at::Tensor device, host;
  for (const bool pinned : {true, false}) {
    absl::Status status = Always([&] {
      device = at::ones({bytes}, Options().dtype(at::kByte));
      host = at::empty({bytes}, at::TensorOptions().dtype(at::kByte).pinned_memory(pinned));
      host.fill_(1);
    })();
    const char* in = pinned ? "host_to_device_pinned" : "host_to_device_pageable";
    const char* out = pinned ? "device_to_host_pinned" : "device_to_host_pageable";
    if (status.ok()) status = AddMemory(in, bytes, Always([&] { device.copy_(host, /*non_blocking=*/true); }), calibration);
    if (status.ok()) status = AddMemory(out, bytes, Always([&] { host.copy_(device, /*non_blocking=*/true); }), calibration);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status DeviceBench::MeasureSustained(v1::DType dtype, double seconds, v1::Calibration* calibration) {
  const int64_t size = quick_ ? 64 : dtype == v1::FLOAT32 ? 4096 : 8192;
  const double flops = 2.0 * static_cast<double>(size) * static_cast<double>(size) * static_cast<double>(size);
  at::Tensor a, b, out;
  absl::Status status = Always([&] {
    const auto options = Options().dtype(graph::ToScalarType(dtype));
    a = at::randn({size, size}, Options()).to(options.dtype());
    b = at::randn({size, size}, Options()).to(options.dtype());
    out = at::empty({size, size}, options);
  })();
  const Work one = Always([&] { at::mm_out(out, a, b); });
  constexpr int64_t kTogether = 16;
  const Work some = [&] {
    absl::Status each;
    for (int64_t i = 0; i < kTogether && each.ok(); ++i) each = one();
    return each;
  };
  if (status.ok()) status = one();  // loads the kernel
  std::vector<double> rates;
  const double begin = Now();
  while (status.ok() && (rates.size() < 4 || Now() - begin < seconds)) {
    const auto together = Once(some, 0);
    status = together.status();
    if (status.ok()) rates.push_back(flops * kTogether / std::max(*together, 1e-9));
  }
  if (!status.ok()) return status;
  auto* sustained = calibration->add_sustained();
  sustained->set_dtype(dtype);
  for (const char* dimension : {"m", "n", "k"}) (*sustained->mutable_shape())[dimension] = size;
  sustained->set_seconds(Now() - begin);
  sustained->set_first_flops_per_second(rates.front());
  sustained->set_last_flops_per_second(SpreadOf({rates.end() - std::ssize(rates) / 4, rates.end()}).median);
  return absl::OkStatus();
}

}  // namespace legoai::sim
