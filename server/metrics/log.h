// The server's log: JSON lines, one object per line, on stderr unless another sink is set.
//
//   {"time":"2026-11-21T20:15:04.123456Z","level":"info","message":"lease given","job":"projects/default/jobs/01J...","epoch":3}
//
// No secrets and no contents of requests go in here. Thread-safe; a line is written whole, never mixed with another.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

namespace legoai::server {

enum class LogLevel { kInfo, kWarning, kError };

// What a line is about. Unset fields are omitted. `job` is the resource name.
struct LogFields {
  std::string_view job = {};
  std::optional<int64_t> attempt = {};
  std::optional<int64_t> rank = {};
  std::optional<int64_t> epoch = {};
  std::string_view worker = {};
};

// Additional values of a line: {"seconds", 0.25}, {"path", path}. Keys contain their unit.
using LogValue = std::variant<std::string_view, int64_t, double>;
using LogExtra = std::initializer_list<std::pair<std::string_view, LogValue>>;

void Log(LogLevel level, std::string_view message, const LogFields& fields = {}, LogExtra extra = {});

inline void LogInfo(std::string_view message, const LogFields& fields = {}, LogExtra extra = {}) {
  Log(LogLevel::kInfo, message, fields, extra);
}
inline void LogWarning(std::string_view message, const LogFields& fields = {}, LogExtra extra = {}) {
  Log(LogLevel::kWarning, message, fields, extra);
}
inline void LogError(std::string_view message, const LogFields& fields = {}, LogExtra extra = {}) {
  Log(LogLevel::kError, message, fields, extra);
}

// Lines, without their line break, go to `sink` from now on; an empty function restores stderr. It runs under the log's lock and
// must not log. For tests.
void SetLogSink(std::function<void(std::string_view line)> sink);

// "2026-11-21T20:15:04.123456Z". `time_us`: microseconds UTC since 1970.
std::string LogTime(int64_t time_us);

}  // namespace legoai::server
