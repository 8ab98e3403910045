#include "simulator/measure/core_speed.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <time.h>

#include <algorithm>
#include <functional>
#include <vector>

#include "simulator/measure/core_processes.h"
#include "worker/graph/ivalue_constant.h"

namespace legoai::sim {
namespace {

double CpuSeconds() {
  timespec now = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// Of this thread, the fastest of a few: what else runs here slows the others.
double SecondsOf(const std::function<void()>& work) {
  constexpr int kRuns = 3;
  double fastest = 0;
  for (int i = 0; i <= kRuns; ++i) {
    const double begin = CpuSeconds();
    work();
    const double seconds = CpuSeconds() - begin;
    if (i > 0) fastest = i == 1 ? seconds : std::min(fastest, seconds);  // the first one warms up
  }
  return std::max(fastest, 1e-9);
}

double ProductFlopsPerSecond(v1::DType dtype) {
  constexpr int64_t kSize = 256;
  const at::Tensor a = at::ones({kSize, kSize}, at::TensorOptions().dtype(graph::ToScalarType(dtype)));
  return 2.0 * kSize * kSize * kSize / SecondsOf([&] { at::mm(a, a); });
}

double BytesPerSecond() {
  constexpr int64_t kElements = 4 << 20;
  at::Tensor a = at::ones({kElements});
  return 2.0 * kElements * sizeof(float) / SecondsOf([&] { a.add_(1); });
}

}  // namespace

absl::StatusOr<CoreSpeed> MeasureCoreSpeed(v1::DType dtype, int64_t busy_cores) {
  const auto cores = RunOnCores(busy_cores, [&](int64_t) -> absl::StatusOr<std::vector<double>> {
    return std::vector<double>{ProductFlopsPerSecond(dtype), ProductFlopsPerSecond(v1::FLOAT32), BytesPerSecond()};
  });
  if (!cores.ok()) return cores.status();
  CoreSpeed speed{dtype, 0, 0, 0};
  for (const auto& core : *cores) {
    speed.flops_per_second += core[0] / static_cast<double>(cores->size());
    speed.float32_flops_per_second += core[1] / static_cast<double>(cores->size());
    speed.bytes_per_second += core[2] / static_cast<double>(cores->size());
  }
  return speed;
}

}  // namespace legoai::sim
