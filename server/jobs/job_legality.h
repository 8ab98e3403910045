// Whether any recipe at all could train a job, on whatever workers: what no planning can mend is refused at submission, by the
// rules of core/recipe/legality.h. gRPC-free. Thread-safety: pure functions.
#pragma once

#include "absl/status/status.h"
#include "proto/legoai/v1/job.pb.h"

namespace legoai::server {

// `spec` has passed all other checks and has its defaults. Constraints bind; whatever the planner is free to choose is taken as
// what breaks the fewest rules, so that nothing is refused that some cluster could train.
// Errors: FieldErrors of spec.planning.constraints[i] where a constraint is at fault, of spec.recipe... where the job itself is.
absl::Status CheckLegal(const v1::JobSpec& spec);

}  // namespace legoai::server
