#include "worker/train/lr_schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace legoai::train {

double LrFactor(const v1::LrScheduler& scheduler, int64_t step, int64_t steps) {
  const int64_t warmup = std::min(scheduler.warmup_steps(), steps);
  if (step <= warmup) return static_cast<double>(step) / static_cast<double>(warmup);
  if (scheduler.decay_type() == "none") return 1;
  const double progress = std::min(1.0, static_cast<double>(step - warmup - 1) / static_cast<double>(steps - warmup));
  const double decay = scheduler.decay_type() == "linear" ? 1 - progress : (1 + std::cos(std::numbers::pi * progress)) / 2;
  return scheduler.min_lr_factor() + (1 - scheduler.min_lr_factor()) * decay;
}

}  // namespace legoai::train
