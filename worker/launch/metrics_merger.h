// Makes one StepMetrics of the reports of all ranks. Not thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "proto/legoai/v1/metrics.pb.h"

namespace legoai::launch {

// Of more ranks not all have a row in a report, whose size would grow with the job.
inline constexpr int kMostRankRows = 64;

// Leaves the rows of `most` ranks, ascending by rank: the first, whose row curves follow from step to step, and those that wait
// least of their step, and so hold up the others; of equals the lower rank. Rows must be ascending by rank.
void KeepBusiestRanks(int most, v1::StepMetrics* metrics);

class MetricsMerger {
 public:
  explicit MetricsMerger(int64_t world_size) : world_size_(world_size), peaks_(world_size, 0) {}

  // As soon as all ranks have reported the step: rank 0's report with the largest peak of memory of all, their rows, and their
  // share of exposed communication; nothing of that where no rank communicates.
  std::optional<v1::StepMetrics> Add(int64_t rank, const v1::StepMetrics& metrics);
  // The same of what rank 0 reported and others will not, ascending: to be asked when a job has ended.
  std::vector<v1::StepMetrics> Rest();

  // Latest peak of each rank.
  const std::vector<int64_t>& peak_memory_bytes() const { return peaks_; }

 private:
  struct Pending {
    int64_t reports = 0, peak = 0;
    std::optional<v1::StepMetrics> first;
    std::map<int64_t, v1::RankMetrics> rows;  // by rank
  };
  static v1::StepMetrics Merge(Pending pending);

  const int64_t world_size_;
  std::vector<int64_t> peaks_;
  std::map<int64_t, Pending> pending_;  // by step
};

}  // namespace legoai::launch
