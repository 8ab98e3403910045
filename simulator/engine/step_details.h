// Which operators and modules take the time of a step, and what its end waited for: the details of `lego simulate`.
//
// Torch-free. Thread-safety: a pure function.
#pragma once

#include <vector>

#include "absl/status/status.h"
#include "proto/legoai/v1/estimate.pb.h"
#include "simulator/engine/step_simulation.h"

namespace legoai::sim {

// Fills largest_operators, largest_modules and critical_path. Of the stage with the most compute: what its compute stream does,
// collectives on it included, with the times that each takes alone. Errors: NotFound for an operator without a rule.
absl::Status AddStepDetails(const std::vector<StageTrace>& stages, const v1::Cluster& cluster, const StepSimulation& step,
                            v1::Estimate* estimate);

}  // namespace legoai::sim
