// What an attempt's log says to people, in the words of `lego` and of TorchTitan. Torch-free. Not thread-safe.
#pragma once

#include <cstdint>
#include <string>

#include "proto/legoai/v1/metrics.pb.h"
#include "proto/legoai/v1/worker_service.pb.h"

namespace legoai::agent {

// "attempt 2 begins: 2 ranks of workers/a (shard 2, local batch 4, ...), in /runs/01J/epoch-2, from step 100".
std::string BeginText(const v1::StartAttempt& start, const std::string& directory);

// "step: 10  loss: 7.1234  grad_norm: 1.2345  memory: 123 MiB  tps: 12,345  mfu: 31.2 %  validation_loss: 7.0123"; what the
// report does not have is left out.
std::string StepText(const v1::StepMetrics& metrics);

// Which reports become lines: the first, those with a held-out loss, that of the last step, and of the others one a second.
// How many reports there are is the recipe's metrics.log_freq.
class StepLines {
 public:
  explicit StepLines(int64_t steps) : steps_(steps) {}
  bool Wants(const v1::StepMetrics& metrics, int64_t now_us);

 private:
  const int64_t steps_;
  bool first_ = true;
  int64_t told_us_ = 0;
};

}  // namespace legoai::agent
