#include "worker/agent/attempt_log.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "proto/quantity_text.h"

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
                      " of ", start.placement().worker(), recipe, ", in ", directory,
                      start.has_resume_step() ? absl::StrCat(", from step ", start.resume_step()) : ", from the beginning");
}

std::string StepText(const v1::StepMetrics& metrics) {
  std::string text = absl::StrCat("step: ", metrics.step());
  if (metrics.has_loss()) absl::StrAppend(&text, absl::StrFormat("  loss: %.4f", metrics.loss()));
  if (metrics.has_grad_norm()) absl::StrAppend(&text, absl::StrFormat("  grad_norm: %.4f", metrics.grad_norm()));
  if (metrics.has_peak_memory_bytes()) absl::StrAppend(&text, "  memory: ", BytesText(metrics.peak_memory_bytes()));
  absl::StrAppend(&text, "  tps: ", WithCommas(WholeTokens(metrics)));
  if (metrics.has_mfu()) absl::StrAppend(&text, "  mfu: ", PercentText(metrics.mfu()));
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
