#include "worker/train/lr_schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string>

namespace legoai::train {

namespace {

// From 1 to 0 as `progress` goes from 0 to 1.
double Decayed(const std::string& type, double progress) {
  if (type == "linear") return 1 - progress;
  if (type == "sqrt") return 1 - std::sqrt(progress);
  return (1 + std::cos(std::numbers::pi * progress)) / 2;
}

}  // namespace

double LrFactor(const v1::LrScheduler& scheduler, int64_t step, int64_t steps) {
  const int64_t warmup = std::min(scheduler.warmup_steps(), steps);
  if (step <= warmup) return static_cast<double>(step) / static_cast<double>(warmup);
  int64_t decay = steps - warmup;
  if (scheduler.has_decay_ratio()) decay = std::min<int64_t>(decay, std::llround(scheduler.decay_ratio() * steps));
  const int64_t into = step - (steps - decay) - 1;
  if (scheduler.decay_type() == "none" || into <= 0) return 1;
  const double progress = std::min(1.0, static_cast<double>(into) / static_cast<double>(decay));
  return scheduler.min_lr_factor() + (1 - scheduler.min_lr_factor()) * Decayed(scheduler.decay_type(), progress);
}

}  // namespace legoai::train
