#include "worker/launch/metrics_merger.h"

#include <algorithm>
#include <tuple>
#include <utility>

namespace legoai::launch {

namespace {

std::optional<double> ExposedShare(const v1::StepMetrics& metrics) {
  double exposed = 0, steps = 0;
  bool communicates = false;
  for (const v1::RankMetrics& row : metrics.ranks()) {
    exposed += row.exposed_communication_seconds();
    steps += row.step_seconds();
    communicates = communicates || row.collectives_size() > 0;
  }
  if (!communicates || steps <= 0) return std::nullopt;
  return exposed / steps;
}

}  // namespace

void KeepBusiestRanks(int most, v1::StepMetrics* metrics) {
  auto& rows = *metrics->mutable_ranks();
  if (rows.size() <= most) return;
  std::sort(rows.begin() + 1, rows.end(), [](const v1::RankMetrics& a, const v1::RankMetrics& b) {
    return std::tuple(a.exposed_communication_seconds(), a.rank()) < std::tuple(b.exposed_communication_seconds(), b.rank());
  });
  rows.DeleteSubrange(most, rows.size() - most);
  std::sort(rows.begin(), rows.end(), [](const v1::RankMetrics& a, const v1::RankMetrics& b) { return a.rank() < b.rank(); });
}

std::optional<v1::StepMetrics> MetricsMerger::Add(int64_t rank, const v1::StepMetrics& metrics) {
  Pending& pending = pending_[metrics.step()];
  ++pending.reports;
  pending.peak = std::max(pending.peak, metrics.peak_memory_bytes());
  for (const v1::RankMetrics& row : metrics.ranks()) pending.rows[rank] = row;
  if (rank == 0) pending.first = metrics;
  peaks_[rank] = metrics.peak_memory_bytes();
  if (pending.reports < world_size_ || !pending.first) return std::nullopt;
  v1::StepMetrics merged = Merge(std::move(pending));
  pending_.erase(metrics.step());
  return merged;
}

std::vector<v1::StepMetrics> MetricsMerger::Rest() {
  std::vector<v1::StepMetrics> rest;
  for (auto& [step, pending] : pending_) {
    if (pending.first) rest.push_back(Merge(std::move(pending)));
  }
  pending_.clear();
  return rest;
}

v1::StepMetrics MetricsMerger::Merge(Pending pending) {
  v1::StepMetrics merged = *std::move(pending.first);
  merged.set_peak_memory_bytes(pending.peak);
  merged.clear_ranks();
  for (auto& [rank, row] : pending.rows) {
    row.set_rank(rank);
    *merged.add_ranks() = std::move(row);
  }
  // Of all ranks: those that are kept wait least.
  if (const auto share = ExposedShare(merged)) merged.set_exposed_communication_share(*share);
  KeepBusiestRanks(kMostRankRows, &merged);
  return merged;
}

}  // namespace legoai::launch
