#include "server/cli/pace.h"

namespace legoai::cli {

double Pace::Observe(int64_t step, double latest, absl::Time now) {
  if (first_step_ < 0 || step < last_step_) first_step_ = step, first_time_ = now;
  last_step_ = step;
  const int64_t passed = step - first_step_;
  return passed > 0 ? absl::ToDoubleSeconds(now - first_time_) / static_cast<double>(passed) : latest;
}

}  // namespace legoai::cli
