#include "simulator/hardware/measure_cpu.h"

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/add.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/sum.h>

#include <algorithm>
#include <barrier>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "simulator/hardware/host.h"
#include "simulator/hardware/loopback.h"

namespace legoai::sim {
namespace {

double Now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

// Runs `make()`'s result again and again on all cores for a while; gives the mean over the cores of calls per second.
double CallsPerSecond(int64_t cores, const std::function<std::function<void()>()>& make) {
  constexpr double kSeconds = 0.25;
  std::barrier start(cores);
  std::vector<double> rates(cores);
  std::vector<std::thread> threads;
  for (int64_t core = 0; core < cores; ++core) {
    threads.emplace_back([&, core] {
      at::set_num_threads(1);
      std::function<void()> call = make();
      call();
      start.arrive_and_wait();
      int64_t calls = 0;
      double begin = Now(), now = begin;
      while (now - begin < kSeconds) {
        call();
        ++calls;
        now = Now();
      }
      rates[core] = static_cast<double>(calls) / (now - begin);
    });
  }
  for (auto& thread : threads) thread.join();
  double sum = 0;
  for (double rate : rates) sum += rate;
  return sum / static_cast<double>(cores);
}

double MatmulFlops(int64_t cores, at::ScalarType dtype) {
  constexpr int64_t kSize = 512;
  auto make = [dtype] {
    at::Tensor a = at::ones({kSize, kSize}, at::TensorOptions().dtype(dtype)), b = at::ones_like(a);
    return std::function<void()>([a, b] { at::mm(a, b); });
  };
  return 2.0 * kSize * kSize * kSize * CallsPerSecond(cores, make);
}

double AttentionFlops(int64_t cores) {
  constexpr int64_t kHeads = 8, kLength = 256, kDim = 64;
  auto make = [] {
    at::Tensor q = at::ones({1, kHeads, kLength, kDim});
    return std::function<void()>([q] { at::_scaled_dot_product_flash_attention_for_cpu(q, q, q, 0.0, true); });
  };
  return 2.0 * kHeads * kLength * (kLength + 1) * kDim * CallsPerSecond(cores, make);
}

// Bytes per second of an operator on fp32 tensors well beyond the caches of a core.
constexpr int64_t kElements = 4 << 20;
double Streaming(int64_t cores, double bytes_per_element, const std::function<void(std::vector<at::Tensor>&)>& call) {
  auto make = [&call] {
    auto tensors = std::make_shared<std::vector<at::Tensor>>();
    for (int i = 0; i < 4; ++i) tensors->push_back(at::ones({kElements / 1024, 1024}));
    tensors->push_back(at::ones({}));
    return std::function<void()>([tensors, call] { call(*tensors); });
  };
  return bytes_per_element * kElements * CallsPerSecond(cores, make);
}

double DispatchSeconds(int64_t cores) {
  auto make = [] {
    at::Tensor a = at::ones({1}), b = at::ones({1});
    return std::function<void()>([a, b] {
      for (int i = 0; i < 100; ++i) at::add(a, b);
    });
  };
  return 1 / (100 * CallsPerSecond(cores, make));
}

void SetPeak(v1::Device* device, v1::DType dtype, double flops_per_second) {
  auto* peak = device->add_peak_flops();
  peak->set_dtype(dtype);
  peak->set_flops_per_second(flops_per_second);
}

void SetEfficiency(v1::Device* device, const char* op_class, double fraction) {
  auto* efficiency = device->add_efficiencies();
  efficiency->set_op_class(op_class);
  efficiency->set_fraction(std::min(1.0, fraction));
  efficiency->set_source("measured on this machine, all cores busy");
}

}  // namespace

absl::StatusOr<v1::Device> MeasureCpu() {
  const int64_t cores = HostPhysicalCores();
  auto link = MeasureLoopback();
  if (!link.ok()) return link.status();
  v1::Device device;
  device.set_type("cpu");
  device.set_kind(v1::CPU);
  const double fp32 = MatmulFlops(cores, at::kFloat);
  SetPeak(&device, v1::FLOAT32, fp32);
  SetPeak(&device, v1::FLOAT64, MatmulFlops(cores, at::kDouble));
  SetPeak(&device, v1::BFLOAT16, MatmulFlops(cores, at::kBFloat16));
  const double copy = Streaming(cores, 8, [](auto& t) { t[0].copy_(t[1]); });
  const double add = Streaming(cores, 12, [](auto& t) { t[0].add_(t[1]); });
  const double sum = Streaming(cores, 4, [](auto& t) { at::sum(t[0], {1}); });
  const double update = Streaming(cores, 28, [](auto& t) {
    std::vector<at::Tensor> p{t[0]}, g{t[1]}, m{t[2]}, v{t[3]}, step{t[4]};
    at::_fused_adamw_(p, g, m, v, {}, step, 1e-3, 0.9, 0.95, 0.1, 1e-8, false, false);
  });
  const double bandwidth = std::max({copy, add, sum, update});
  device.set_memory_bandwidth_bytes_per_second(bandwidth);
  SetEfficiency(&device, "matmul", 1);
  SetEfficiency(&device, "attention", AttentionFlops(cores) / fp32);
  SetEfficiency(&device, "elementwise", add / bandwidth);
  SetEfficiency(&device, "reduction", sum / bandwidth);
  SetEfficiency(&device, "copy", copy / bandwidth);
  SetEfficiency(&device, "optimizer", update / bandwidth);
  device.set_host_dispatch_seconds(DispatchSeconds(cores));
  device.set_kernel_launch_seconds(1e-7);
  device.set_reserve_source("the process itself is not counted; what tensors get is counted to the byte");
  device.set_allocation_rounding_bytes(1);
  device.set_node_link("loopback");
  device.set_cluster_link("ethernet-25");
  device.set_communication_compute_share(1);
  *device.mutable_measured_node_link() = *link;
  device.add_sources(absl::StrCat("measured with LibTorch on this machine, ", cores, " cores busy at once, one thread each"));
  return device;
}

}  // namespace legoai::sim
