#include "simulator/measure/host_measurement.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/_softmax.h>
#include <ATen/ops/add.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/sum.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "core/hardware/catalog.h"
#include "core/hardware/host.h"
#include "proto/status.h"
#include "simulator/measure/core_processes.h"
#include "simulator/measure/eager_overhead.h"
#include "simulator/measure/step_replay.h"

namespace legoai::sim {
namespace {

// What one core measured.
enum Quantity {
  kFloat32,  // FLOP/s of matrix products
  kFloat64,
  kBFloat16,
  kFloat16,
  kCopy,  // bytes/s, as the following ones
  kElementwise,
  kReduction,
  kOptimizer,
  kDispatch,  // seconds
  kQuantities,
};
using Measured = std::array<double, kQuantities>;

double Now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

// Median seconds of `work`, once warmed up, of at least three runs and a third of a second.
double Seconds(const std::function<void()>& work) {
  work();
  std::vector<double> runs;
  const double end = Now() + 0.3;
  while (runs.size() < 3 || Now() < end) {
    const double start = Now();
    work();
    runs.push_back(Now() - start);
  }
  std::nth_element(runs.begin(), runs.begin() + runs.size() / 2, runs.end());
  return runs[runs.size() / 2];
}

double MatmulRate(at::ScalarType dtype, int64_t size) {
  const at::Tensor a = at::randn({size, size}).to(dtype), b = at::randn({size, size}).to(dtype);
  at::Tensor c = at::empty({size, size}, dtype);
  return 2.0 * size * size * size / Seconds([&] { at::mm_out(c, a, b); });
}

// `bytes` that all of `works` move together, in the time that they take together.
double Bandwidth(double bytes, const std::vector<std::function<void()>>& works) {
  double seconds = 0;
  for (const auto& work : works) seconds += Seconds(work);
  return bytes / seconds;
}

void MeasureTraffic(Measured* measured) {
  constexpr int64_t kElements = int64_t{4} << 20;
  constexpr double kBytes = 4.0 * kElements;
  const at::Tensor a = at::randn({kElements / 1024, 1024}), b = at::randn({kElements / 1024, 1024});
  at::Tensor c = at::empty({kElements / 1024, 1024});
  at::Tensor row = at::empty({kElements / 1024});
  (*measured)[kCopy] = Bandwidth(2 * kBytes, {[&] { c.copy_(a); }});
  (*measured)[kElementwise] = Bandwidth(5 * kBytes, {[&] { at::add_out(c, a, b); }, [&] { at::silu_out(c, a); }});
  (*measured)[kReduction] =
      Bandwidth(3 * kBytes, {[&] { at::sum_out(row, a, at::IntArrayRef({1})); }, [&] { at::_softmax_out(c, a, 1, false); }});
  std::vector<at::Tensor> parameters = {a}, gradients = {b}, averages = {at::ones({kElements / 1024, 1024})},
                          squares = {at::ones({kElements / 1024, 1024})}, steps = {at::ones({})};
  (*measured)[kOptimizer] = Bandwidth(7 * kBytes, {[&] {
                                        at::_fused_adamw_(parameters, gradients, averages, squares, {}, steps, 1e-6, 0.9, 0.95,
                                                          0.1, 1e-8, false, false);
                                      }});
}

absl::StatusOr<std::vector<double>> MeasureCore() {
  Measured measured;
  measured[kFloat32] = std::max(MatmulRate(at::kFloat, 512), MatmulRate(at::kFloat, 1024));
  measured[kFloat64] = MatmulRate(at::kDouble, 512);
  measured[kBFloat16] = MatmulRate(at::kBFloat16, 512);
  measured[kFloat16] = MatmulRate(at::kHalf, 256);
  MeasureTraffic(&measured);
  ASSIGN_OR_RETURN(auto dispatch, MeasureEagerOverhead());
  measured[kDispatch] = dispatch;
  return std::vector<double>(measured.begin(), measured.end());
}

// The mean over all cores.
absl::StatusOr<Measured> MeasureAllCores(int64_t cores) {
  auto results = RunOnCores(cores, [](int64_t) { return MeasureCore(); });
  if (!results.ok()) return results.status();
  Measured mean{};
  for (const auto& one : *results) {
    for (int i = 0; i < kQuantities; ++i) mean[i] += one[i] / static_cast<double>(cores);
  }
  return mean;
}

absl::StatusOr<v1::Device> MakeDevice(const Measured& measured, int64_t cores) {
  v1::Device device = *FindDevice("cpu");  // links, reserve and the like, which are not measured
  device.clear_peak_flops();
  device.clear_sources();
  const std::string source = "measured on " + HostProcessor() + ", one core with all " + std::to_string(cores) + " busy";
  auto peak = [&](v1::DType dtype, double flops) {
    auto* added = device.add_peak_flops();
    added->set_dtype(dtype);
    added->set_flops_per_second(flops);
  };
  peak(v1::FLOAT32, measured[kFloat32]);
  peak(v1::FLOAT64, measured[kFloat64]);
  peak(v1::BFLOAT16, measured[kBFloat16]);
  peak(v1::FLOAT16, measured[kFloat16]);
  const double bandwidth = *std::max_element(measured.begin() + kCopy, measured.begin() + kOptimizer + 1);
  device.set_memory_bandwidth_bytes_per_second(bandwidth);
  // On a CPU the smallest operator takes the time of its dispatch, which is measured with it.
  device.set_kernel_launch_seconds(0);
  device.set_host_dispatch_seconds(measured[kDispatch]);
  device.add_sources("peaks, bandwidth, dispatch: " + source);
  device.add_sources("memory_bytes is 0: the host's memory divided by its ranks is taken");
  RETURN_IF_ERROR(MeasureEfficiencies(cores, source, &device));
  return device;
}

}  // namespace

absl::StatusOr<v1::Device> MeasureHost() {
  const OthersUse others;
  const int64_t cores = HostPhysicalCores();
  const auto measured = MeasureAllCores(cores);
  const auto link = MeasureNodeLink();
  auto device = measured.ok() ? MakeDevice(*measured, cores) : measured.status();
  for (const absl::Status& status : {device.status(), link.status()}) {
    if (!status.ok()) return status;
  }
  *device->mutable_measured_node_link() = *link;
  if (const auto share = others.Share()) device->set_measured_while_busy(*share);
  return device;
}

}  // namespace legoai::sim
