#include "worker/agent/use_watch.h"

#include <utility>

#include "absl/time/clock.h"
#include "core/hardware/nvml.h"
#include "core/hardware/processor_use.h"
#include "core/process/memory.h"

namespace legoai::agent {
namespace {

// `before` becomes what the processors' times are now.
v1::WorkerUse Look(std::optional<sim::ProcessorTimes>* before) {
  v1::WorkerUse use;
  const auto now = sim::AllowedProcessorTimes();
  const auto share = *before && now ? sim::UsedShare(**before, *now) : std::nullopt;
  if (share) use.set_processor_share(*share);
  *before = now;
  use.set_memory_bytes(launch::HostMemoryUsedBytes());
  use.set_time_us(absl::ToUnixMicros(absl::Now()));
  return use;
}

void AddGpus(const sim::GpuLoadReader& reader, v1::WorkerUse* use) {
  for (const sim::GpuLoad& load : reader.Read()) {
    v1::GpuUse* const gpu = use->add_gpus();
    gpu->set_index(load.index);
    gpu->set_memory_bytes(load.memory_bytes);
    if (load.utilization) gpu->set_utilization(*load.utilization);
    if (load.temperature_celsius) gpu->set_temperature_celsius(*load.temperature_celsius);
    if (load.power_watts) gpu->set_power_watts(*load.power_watts);
  }
}

}  // namespace

UseWatch::UseWatch(std::vector<int> gpus, absl::Duration interval)
    : gpus_(std::move(gpus)), interval_(interval), thread_([this] { Work(); }) {}

UseWatch::~UseWatch() {
  {
    const MutexLock lock(mutex_);
    ending_ = true;
  }
  ended_.NotifyAll();
  thread_.join();
}

std::optional<v1::WorkerUse> UseWatch::Latest() const {
  constexpr int kMissedLooks = 10;
  constexpr std::chrono::seconds kAtLeast{20};
  const MutexLock lock(mutex_);
  const auto longest = kMissedLooks * absl::ToChronoNanoseconds(interval_) + kAtLeast;
  if (std::chrono::steady_clock::now() - looked_ > longest) return std::nullopt;
  return latest_;
}

void UseWatch::Work() {
  std::optional<sim::ProcessorTimes> before;
  std::optional<sim::GpuLoadReader> reader;
  for (;;) {
    v1::WorkerUse use = Look(&before);
    if (!gpus_.empty() && !reader) {
      auto opened = sim::GpuLoadReader::Open(gpus_);
      if (opened.ok()) reader = *std::move(opened);
    }
    if (reader) AddGpus(*reader, &use);
    MutexLock lock(mutex_);
    latest_ = std::move(use);
    looked_ = std::chrono::steady_clock::now();
    const auto next = looked_ + absl::ToChronoNanoseconds(interval_);
    while (!ending_ && ended_.WaitUntil(lock, next)) {
    }
    if (ending_) return;
  }
}

}  // namespace legoai::agent
