// Makes one StepMetrics of the reports of all ranks: rank 0's, with the largest peak of memory of all. Not
// thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "proto/legoai/v1/metrics.pb.h"

namespace legoai::launch {

class MetricsMerger {
 public:
  explicit MetricsMerger(int64_t world_size) : world_size_(world_size), peaks_(world_size, 0) {}

  // The merged report as soon as all ranks have reported the step.
  std::optional<v1::StepMetrics> Add(int64_t rank, const v1::StepMetrics& metrics);
  // What rank 0 reported and others will not, ascending: to be asked when a job has ended.
  std::vector<v1::StepMetrics> Rest();

  // Latest peak of each rank.
  const std::vector<int64_t>& peak_memory_bytes() const { return peaks_; }

 private:
  struct Pending {
    int64_t reports = 0, peak = 0;
    std::optional<v1::StepMetrics> first;
  };
  const int64_t world_size_;
  std::vector<int64_t> peaks_;
  std::map<int64_t, Pending> pending_;  // by step
};

}  // namespace legoai::launch
