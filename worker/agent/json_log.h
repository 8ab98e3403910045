// Log lines of the agent: JSON objects, one a line, with what they are about as fields. Torch-free. Thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace legoai::agent {

// What a line is about; what is not set is left out.
struct LogSubject {
  std::string job;
  std::optional<int64_t> epoch = std::nullopt, attempt = std::nullopt, rank = std::nullopt;
};

class JsonLog {
 public:
  // Writes to the descriptor, which is not owned. A reader that is gone or a full disk loses lines and nothing else.
  explicit JsonLog(int fd) : fd_(fd) {}

  // `level`: "info", "warning", "error".
  void Write(const std::string& level, const std::string& text, const LogSubject& subject = {}) const;

 private:
  const int fd_;
};

// {"time":"2026-01-02T03:04:05.678901Z","level":...,"message":...,"job":...}
std::string LogLineJson(int64_t time_us, const std::string& level, const std::string& text, const LogSubject& subject);

}  // namespace legoai::agent
