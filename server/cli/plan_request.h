// A planning request as the command line says it: `lego plan`, and each point of a `lego sweep` that plans.
#pragma once

#include "absl/status/statusor.h"
#include "proto/legoai/v1/plan.pb.h"
#include "server/cli/arguments.h"

namespace legoai::cli {

// Of --model, --cluster, --global-batch, --seq, --constraint, --top, --budget-seconds, --min-headroom, --objective, --price,
// --rejected, --recipe and keys of the recipe, of which a command may have some. Errors: FieldErrors of the option.
absl::StatusOr<v1::PlanRequest> ReadPlanRequest(const Arguments& arguments);

}  // namespace legoai::cli
