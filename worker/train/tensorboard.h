// Writes scalars as a TensorBoard event file. Torch-free. Not thread-safe.
//
// The file is a sequence of TFRecords (length, its masked CRC-32C, the bytes, their masked CRC-32C), each an Event message.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/legoai/v1/tensorboard.pb.h"

namespace legoai::train {

class TensorboardWriter {
 public:
  // Makes `folder` if needed, and in it a file of its own: events.out.tfevents.SECONDS.SUFFIX. On an error none is there.
  static absl::StatusOr<std::unique_ptr<TensorboardWriter>> Create(const std::string& folder, const std::string& suffix,
                                                                   absl::Time now);
  ~TensorboardWriter();
  TensorboardWriter(const TensorboardWriter&) = delete;
  TensorboardWriter& operator=(const TensorboardWriter&) = delete;

  // One event with all scalars of a step, handed to the operating system before this returns. On an error, such as a full disk,
  // the file ends with the event before.
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
