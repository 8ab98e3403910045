// One recipe's estimate: captures a rank of every pipeline stage on a fake device, replays memory, simulates time. What
// `lego simulate` prints and `lego plan` ranks by (cli.md).
#pragma once

#include "absl/status/statusor.h"
#include "proto/legoai/v1/estimate.pb.h"
#include "proto/legoai/v1/sim.pb.h"

namespace legoai::sim {

// Blocking; one at a time in a process. Writes the Chrome traces that the request names. Errors: FieldError of a recipe that
// cannot be; NotFound naming an operator without kernel, rule or cost.
absl::StatusOr<v1::Estimate> EstimateRecipe(const v1::SimRequest& request);

}  // namespace legoai::sim
