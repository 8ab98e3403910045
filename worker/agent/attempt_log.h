// Texts of an attempt's log, in the style of `lego` and TorchTitan. Not thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "proto/legoai/v1/metrics.pb.h"
#include "proto/legoai/v1/worker_service.pb.h"

namespace legoai::agent {

// "attempt 2 begins: 2 ranks of workers/a (shard 2, local batch 4, ...), in /runs/01J/epoch-2, from step 100".
std::string BeginText(const v1::StartAttempt& start, const std::string& directory);

// "step: 10  loss: 7.1234  grad_norm: 1.2345  memory: 123 MiB  tps: 12,345  mfu: 31.2 %  hfu: 40.1 %  exposed: 8.1 %
// validation_loss: 7.0123"; what the report does not have is left out, and so is an HFU that is the MFU.
std::string StepText(const v1::StepMetrics& metrics);

// Which reports become log lines: the first, those with a validation loss, that of the last step, and of the others one per
// second. metrics.log_freq of the recipe determines how many reports there are.
class StepLines {
 public:
  explicit StepLines(int64_t steps) : steps_(steps) {}
  bool Wants(const v1::StepMetrics& metrics, int64_t now_us);

 private:
  const int64_t steps_;
  bool first_ = true;
  int64_t told_us_ = 0;
};

// The last lines of a rank's log file, for a process that died. Thread-safety: a read of the file.

// At most `lines` complete, nonempty lines from the last `bytes` bytes, in order. None if there is no such file.
std::vector<std::string> LastLines(const std::string& path, size_t lines, int64_t bytes);

// Log lines of the agent: one JSON object per line, with its subject as fields. Thread-safe.

// What a line is about; unset fields are omitted.
struct LogSubject {
  std::string job;
  std::optional<int64_t> epoch = std::nullopt, attempt = std::nullopt, rank = std::nullopt;
};

class JsonLog {
 public:
  // Writes to the descriptor, which is not owned. If the reader is gone or the disk is full, only the lines are lost.
  explicit JsonLog(int fd) : fd_(fd) {}

  // `level`: "info", "warning", "error".
  void Write(const std::string& level, const std::string& text, const LogSubject& subject = {}) const;

 private:
  const int fd_;
};

// {"time":"2026-01-02T03:04:05.678901Z","level":...,"message":...,"job":...}
std::string LogLineJson(int64_t time_us, const std::string& level, const std::string& text, const LogSubject& subject);

}  // namespace legoai::agent
