#include "server/metrics/log.h"

#include <unistd.h>

#include <cerrno>
#include <chrono>

#include "absl/time/time.h"
#include "core/process/mutex.h"
#include "nlohmann/json.hpp"

namespace legoai::server {
namespace {

using Json = nlohmann::ordered_json;

struct Sink {
  Mutex mutex;
  std::function<void(std::string_view)> write ABSL_GUARDED_BY(mutex);
};

Sink& TheSink() {
  static Sink* const sink = new Sink;  // never destroyed: threads may log until the process ends
  return *sink;
}

// A log that cannot be written is no reason to stop: what does not go out is lost.
void WriteToStderr(std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = write(STDERR_FILENO, text.data(), text.size());
    if (written < 0 && errno != EINTR) return;
    if (written > 0) text.remove_prefix(written);
  }
}

const char* LevelText(LogLevel level) {
  switch (level) {
    case LogLevel::kInfo: return "info";
    case LogLevel::kWarning: return "warning";
    case LogLevel::kError: return "error";
  }
  return "error";
}

std::string Line(LogLevel level, std::string_view message, const LogFields& fields, LogExtra extra) {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  Json line = {{"time", LogTime(std::chrono::duration_cast<std::chrono::microseconds>(now).count())},
               {"level", LevelText(level)},
               {"message", message}};
  if (!fields.job.empty()) line["job"] = fields.job;
  if (fields.attempt) line["attempt"] = *fields.attempt;
  if (fields.rank) line["rank"] = *fields.rank;
  if (fields.epoch) line["epoch"] = *fields.epoch;
  if (!fields.worker.empty()) line["worker"] = fields.worker;
  for (const auto& [key, value] : extra) {
    Json& field = line[std::string(key)];  // clang 14 lets no lambda capture `key`
    std::visit([&field](const auto& v) { field = v; }, value);
  }
  return line.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace

std::string LogTime(int64_t time_us) {
  return absl::FormatTime("%Y-%m-%dT%H:%M:%E6SZ", absl::FromUnixMicros(time_us), absl::UTCTimeZone());
}

void Log(LogLevel level, std::string_view message, const LogFields& fields, LogExtra extra) {
  std::string line = Line(level, message, fields, extra);
  Sink& sink = TheSink();
  const MutexLock lock(sink.mutex);
  if (sink.write) return sink.write(line);
  line += '\n';
  WriteToStderr(line);
}

void SetLogSink(std::function<void(std::string_view)> sink) {
  const MutexLock lock(TheSink().mutex);
  TheSink().write = std::move(sink);
}

}  // namespace legoai::server
