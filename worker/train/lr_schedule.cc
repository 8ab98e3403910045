#include "worker/train/lr_schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "absl/strings/str_cat.h"
#include "proto/errors.h"

namespace legoai::train {

absl::Status CheckLrScheduler(const v1::LrScheduler& scheduler) {
  const std::string& type = scheduler.decay_type();
  if (type != "cosine" && type != "linear" && type != "none") {
    return FieldError("lr_scheduler.decay_type", type, "must be cosine, linear or none");
  }
  if (scheduler.warmup_steps() < 0) {
    return FieldError("lr_scheduler.warmup_steps", absl::StrCat(scheduler.warmup_steps()), "must not be negative");
  }
  if (!(scheduler.min_lr_factor() >= 0 && scheduler.min_lr_factor() <= 1)) {
    return FieldError("lr_scheduler.min_lr_factor", absl::StrCat(scheduler.min_lr_factor()), "must be from 0 to 1");
  }
  return absl::OkStatus();
}

double LrFactor(const v1::LrScheduler& scheduler, int64_t step, int64_t steps) {
  const int64_t warmup = std::min(scheduler.warmup_steps(), steps);
  if (step <= warmup) return static_cast<double>(step) / static_cast<double>(warmup);
  if (scheduler.decay_type() == "none") return 1;
  const double progress = std::min(1.0, static_cast<double>(step - warmup - 1) / static_cast<double>(steps - warmup));
  const double decay = scheduler.decay_type() == "linear" ? 1 - progress : (1 + std::cos(std::numbers::pi * progress)) / 2;
  return scheduler.min_lr_factor() + (1 - scheduler.min_lr_factor()) * decay;
}

}  // namespace legoai::train
