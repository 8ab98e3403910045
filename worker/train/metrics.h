// Metrics of a training: the figures of measured steps, and scalars as a TensorBoard event file. Torch-free. Not thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/legoai/v1/launch.pb.h"
#include "proto/legoai/v1/metrics.pb.h"
#include "proto/legoai/v1/tensorboard.pb.h"
#include "worker/train/step_breakdown.h"

namespace legoai::train {

// Turns measured steps into the figures of StepMetrics.
class Meter {
 public:
  // `tokens_per_step`: of the whole job. Figures of Start: attempt, rank, world size, FLOPs per token and of a device per second.
  Meter(const v1::Start& start, int64_t tokens_per_step);

  // One step of this rank, with its step_ns and data_ns. With `steps` 0 its phases and communication could not be measured: then
  // it counts in the job's figures, and not in the rank's row.
  void Add(const StepBreakdown& step);

  // Means since the last call: seconds, tokens per second, this rank's row if a step was measured, and MFU = FLOPs per token x
  // tokens per second / (devices x FLOPs per second); HFU is the same of the FLOPs of recomputation, too. Both are left out where
  // a device's peak is not known or is below what the device did (fault()). Then begins anew.
  v1::StepMetrics Take(int64_t step, absl::Time now);

  // Why the last figures have no MFU although a peak is given: an error in the catalog. Empty if they have one.
  const std::string& fault() const { return fault_; }

 private:
  void AddUtilization(v1::StepMetrics* metrics);

  const v1::Start& start_;
  const int64_t tokens_per_step_;
  std::string fault_;
  int64_t steps_ = 0, step_ns_ = 0, data_ns_ = 0;  // of all steps
  StepBreakdown measured_;
};

// The file is a sequence of TFRecords (length, its masked CRC-32C, the bytes, their masked CRC-32C), each an Event message.
class TensorboardWriter {
 public:
  // Creates `folder` if needed, and a new file in it: events.out.tfevents.SECONDS.SUFFIX. On an error no file is left.
  static absl::StatusOr<std::unique_ptr<TensorboardWriter>> Create(const std::string& folder, const std::string& suffix,
                                                                   absl::Time now);
  ~TensorboardWriter();
  TensorboardWriter(const TensorboardWriter&) = delete;
  TensorboardWriter& operator=(const TensorboardWriter&) = delete;

  // One event with all scalars of a step, handed to the operating system before this returns. On an error, such as a full disk,
  // the file ends with the previous event.
  absl::Status Write(int64_t step, absl::Time now, const std::vector<std::pair<std::string, double>>& scalars);

  const std::string& path() const { return path_; }

 private:
  TensorboardWriter(std::string path, int descriptor) : path_(std::move(path)), descriptor_(descriptor) {}
  absl::Status WriteEvent(const v1::TensorboardEvent& event);

  const std::string path_;
  const int descriptor_;
  int64_t end_ = 0;  // of the last whole record
};

}  // namespace legoai::train
