// Turns measured steps into the figures of StepMetrics. Torch-free. Not thread-safe.
#pragma once

#include <cstdint>
#include <string>

#include "absl/time/time.h"
#include "proto/legoai/v1/launch.pb.h"
#include "proto/legoai/v1/metrics.pb.h"

namespace legoai::train {

class Meter {
 public:
  // `tokens_per_step`: of the whole job. Figures of Start: attempt, world size, FLOPs per token and of a device per second.
  Meter(const v1::Start& start, int64_t tokens_per_step);

  // One step took `step` in all, `data` of it to fetch the batch.
  void Add(absl::Duration step, absl::Duration data);

  // Means since the last call: seconds, tokens per second, and MFU = FLOPs per token x tokens per second / (devices x FLOPs per
  // second), left out where a device's peak is not known or is below what the device did (fault()). Then begins anew.
  v1::StepMetrics Take(int64_t step, absl::Time now);

  // Why the last figures have no MFU although a peak is given: an error of the catalog. Empty where they have one.
  const std::string& fault() const { return fault_; }

 private:
  void AddMfu(v1::StepMetrics* metrics);

  const v1::Start& start_;
  const int64_t tokens_per_step_;
  std::string fault_;
  int64_t steps_ = 0;
  absl::Duration step_time_, data_time_;
};

}  // namespace legoai::train
