#include "worker/agent/attempt_log.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace legoai::agent {
namespace {

constexpr int64_t kLineEveryUs = 1'000'000;
constexpr double kMiB = 1024.0 * 1024.0, kGiB = 1024.0 * kMiB;

// "1,234,567"
std::string WithCommas(double value) {
  std::string text = absl::StrFormat("%.0f", std::isfinite(value) && value > 0 ? value : 0.0);
  for (int64_t at = static_cast<int64_t>(text.size()) - 3; at > 0; at -= 3) text.insert(static_cast<size_t>(at), 1, ',');
  return text;
}

// "1.50GiB"; "3.2MiB" where that would read 0.00GiB or not much more.
std::string MemoryText(int64_t bytes) {
  const double size = static_cast<double>(bytes);
  return size < 0.1 * kGiB ? absl::StrFormat("%.1fMiB", size / kMiB) : absl::StrFormat("%.2fGiB", size / kGiB);
}

}  // namespace

std::string BeginText(const v1::StartAttempt& start, const std::string& directory) {
  const std::string recipe = start.recipe_text().empty() ? "" : absl::StrCat(" (", start.recipe_text(), ")");
  return absl::StrCat("attempt ", start.attempt(), " begins: ", start.world_size(), start.world_size() == 1 ? " rank" : " ranks",
                      " of ", start.placement().worker(), recipe, ", in ", directory,
                      start.has_resume_step() ? absl::StrCat(", from step ", start.resume_step()) : ", from the beginning");
}

std::string StepText(const v1::StepMetrics& metrics) {
  std::string text = absl::StrCat("step: ", metrics.step());
  if (metrics.has_loss()) absl::StrAppend(&text, absl::StrFormat("  loss: %.4f", metrics.loss()));
  if (metrics.has_grad_norm()) absl::StrAppend(&text, absl::StrFormat("  grad_norm: %.4f", metrics.grad_norm()));
  if (metrics.has_peak_memory_bytes()) absl::StrAppend(&text, "  memory: ", MemoryText(metrics.peak_memory_bytes()));
  absl::StrAppend(&text, "  tps: ", WithCommas(metrics.tokens_per_second()));
  if (metrics.has_mfu()) absl::StrAppend(&text, absl::StrFormat("  mfu: %.2f%%", 100 * metrics.mfu()));
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

}  // namespace legoai::agent
