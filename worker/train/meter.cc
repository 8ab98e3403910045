#include "worker/train/meter.h"

#include "core/model/model_facts.h"

namespace legoai::train {

Meter::Meter(const v1::Start& start, int64_t tokens_per_step) : start_(start), tokens_per_step_(tokens_per_step) {}

void Meter::Add(absl::Duration step, absl::Duration data) {
  ++steps_;
  step_time_ += step;
  data_time_ += data;
}

v1::StepMetrics Meter::Take(int64_t step, absl::Time now) {
  v1::StepMetrics metrics;
  metrics.set_attempt(start_.attempt());
  metrics.set_step(step);
  metrics.set_time_unix_seconds(absl::ToDoubleSeconds(now - absl::UnixEpoch()));
  if (steps_ > 0 && step_time_ > absl::ZeroDuration()) {
    metrics.set_step_seconds(absl::ToDoubleSeconds(step_time_) / static_cast<double>(steps_));
    metrics.set_data_seconds(absl::ToDoubleSeconds(data_time_) / static_cast<double>(steps_));
    metrics.set_tokens_per_second(static_cast<double>(tokens_per_step_) / metrics.step_seconds());
    AddMfu(&metrics);
  }
  steps_ = 0;
  step_time_ = data_time_ = absl::ZeroDuration();
  return metrics;
}

void Meter::AddMfu(v1::StepMetrics* metrics) {
  fault_.clear();
  if (start_.peak_flops_per_second() <= 0 || start_.model_flops_per_token() <= 0) return;
  const double of_a_device =
      start_.model_flops_per_token() * metrics->tokens_per_second() / static_cast<double>(start_.world_size());
  const auto mfu = model::ModelFlopsUtilization(of_a_device, start_.peak_flops_per_second());
  if (mfu.ok()) return metrics->set_mfu(*mfu);
  fault_ = std::string(mfu.status().message());
}

}  // namespace legoai::train
