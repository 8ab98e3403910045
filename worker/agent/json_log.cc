#include "worker/agent/json_log.h"

#include <unistd.h>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "nlohmann/json.hpp"

namespace legoai::agent {

std::string LogLineJson(int64_t time_us, const std::string& level, const std::string& text, const LogSubject& subject) {
  nlohmann::ordered_json line;
  line["time"] = absl::FormatTime("%Y-%m-%dT%H:%M:%E6SZ", absl::FromUnixMicros(time_us), absl::UTCTimeZone());
  line["level"] = level;
  line["message"] = text;
  if (!subject.job.empty()) line["job"] = subject.job;
  if (subject.epoch) line["epoch"] = *subject.epoch;
  if (subject.attempt) line["attempt"] = *subject.attempt;
  if (subject.rank) line["rank"] = *subject.rank;
  return line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

void JsonLog::Write(const std::string& level, const std::string& text, const LogSubject& subject) const {
  const std::string line = LogLineJson(absl::ToUnixMicros(absl::Now()), level, text, subject) + "\n";
  // In one piece, so that lines of several threads do not mix.
  [[maybe_unused]] const ssize_t written = write(fd_, line.data(), line.size());
}

}  // namespace legoai::agent
