#include "worker/launch/metrics_merger.h"

#include <algorithm>
#include <utility>

namespace legoai::launch {

std::optional<v1::StepMetrics> MetricsMerger::Add(int64_t rank, const v1::StepMetrics& metrics) {
  Pending& pending = pending_[metrics.step()];
  ++pending.reports;
  pending.peak = std::max(pending.peak, metrics.peak_memory_bytes());
  if (rank == 0) pending.first = metrics;
  peaks_[rank] = metrics.peak_memory_bytes();
  if (pending.reports < world_size_ || !pending.first) return std::nullopt;
  v1::StepMetrics merged = *std::move(pending.first);
  merged.set_peak_memory_bytes(pending.peak);
  pending_.erase(metrics.step());
  return merged;
}

std::vector<v1::StepMetrics> MetricsMerger::Rest() {
  std::vector<v1::StepMetrics> rest;
  for (auto& [step, pending] : pending_) {
    if (!pending.first) continue;
    rest.push_back(*std::move(pending.first));
    rest.back().set_peak_memory_bytes(pending.peak);
  }
  pending_.clear();
  return rest;
}

}  // namespace legoai::launch
