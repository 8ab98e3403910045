// How long a step takes as it has been since the training is watched: steadier than single steps, of which one may save or
// evaluate. Not thread-safe.
#pragma once

#include <cstdint>

#include "absl/time/time.h"

namespace legoai::cli {

class Pace {
 public:
  // Seconds per step when `step` is done at `now`: the mean of those that were seen to pass, of the first one `latest`, what it
  // says itself. A step behind the last one, of another attempt, begins anew.
  double Observe(int64_t step, double latest, absl::Time now);
  // The training does not go on: what follows begins anew.
  void Forget() { first_step_ = -1; }

 private:
  int64_t first_step_ = -1, last_step_ = -1;
  absl::Time first_time_;
};

}  // namespace legoai::cli
