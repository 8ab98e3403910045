#include "worker/agent/attempt_log.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "nlohmann/json.hpp"
#include "proto/read_file.h"
#include "proto/text.h"

namespace legoai::agent {
namespace {

constexpr int64_t kLineEveryUs = 1'000'000;

int64_t WholeTokens(const v1::StepMetrics& metrics) {
  const double rate = metrics.tokens_per_second();
  return std::isfinite(rate) && rate > 0 ? std::llround(rate) : 0;
}

}  // namespace

std::string BeginText(const v1::StartAttempt& start, const std::string& directory) {
  const std::string recipe = start.recipe_text().empty() ? "" : absl::StrCat(" (", start.recipe_text(), ")");
  return absl::StrCat("attempt ", start.attempt(), " begins: ", start.world_size(), start.world_size() == 1 ? " rank" : " ranks",
                      " of ", start.placement().worker(),
                      start.has_gang() ? absl::StrCat(", which has ", start.placement().slots(), " from rank ",
                                                      start.placement().first_rank(), ", and ", start.gang().workers() - 1,
                                                      start.gang().workers() == 2 ? " other" : " others")
                                       : "",
                      recipe, ", in ", directory,
                      start.has_resume_step() ? absl::StrCat(", from step ", start.resume_step()) : ", from the beginning");
}

std::string StepText(const v1::StepMetrics& metrics) {
  std::string text = absl::StrCat("step: ", metrics.step());
  if (metrics.has_loss()) absl::StrAppend(&text, absl::StrFormat("  loss: %.4f", metrics.loss()));
  if (metrics.has_grad_norm()) absl::StrAppend(&text, absl::StrFormat("  grad_norm: %.4f", metrics.grad_norm()));
  if (metrics.has_peak_memory_bytes()) absl::StrAppend(&text, "  memory: ", BytesText(metrics.peak_memory_bytes()));
  absl::StrAppend(&text, "  tps: ", WithCommas(WholeTokens(metrics)));
  if (metrics.has_mfu()) absl::StrAppend(&text, "  mfu: ", PercentText(metrics.mfu()));
  if (metrics.hfu() > metrics.mfu()) absl::StrAppend(&text, "  hfu: ", PercentText(metrics.hfu()));
  if (metrics.has_exposed_communication_share())
    absl::StrAppend(&text, "  exposed: ", PercentText(metrics.exposed_communication_share()));
  if (metrics.has_validation_loss())
    absl::StrAppend(&text, absl::StrFormat("  validation_loss: %.4f", metrics.validation_loss()));
  return text;
}

bool StepLines::Wants(const v1::StepMetrics& metrics, int64_t now_us) {
  // A clock that was set back must not silence this.
  const bool recent = !first_ && now_us >= told_us_ && now_us - told_us_ < kLineEveryUs;
  if (recent && !metrics.has_validation_loss() && metrics.step() != steps_) return false;
  first_ = false;
  told_us_ = now_us;
  return true;
}

std::vector<std::string> LastLines(const std::string& path, size_t lines, int64_t bytes) {
  const auto file = OpenRegularFile(path);
  if (!file.ok()) return {};
  const int64_t size = lseek(*file, 0, SEEK_END);
  // One byte more tells whether the first line is whole.
  const int64_t begin = std::max<int64_t>(0, size - bytes - 1);
  std::string text(static_cast<size_t>(std::max<int64_t>(0, size - begin)), '\0');
  const ssize_t got = pread(*file, text.data(), text.size(), begin);
  close(*file);
  text.resize(static_cast<size_t>(std::max<ssize_t>(0, got)));
  if (begin > 0) text.erase(0, std::min(text.find('\n'), text.size()));
  std::vector<std::string> all = absl::StrSplit(text, '\n', absl::SkipEmpty());
  if (all.size() > lines) all.erase(all.begin(), all.end() - static_cast<int64_t>(lines));
  return all;
}

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
