// Plans that were made before, kept in the store (server/store/store.h) for jobs that ask for the same. The planner's answer
// follows from its request, so a plan is found by the digest of all of it: model, cluster with every figure of its devices,
// batch, constraints, base recipe, the recipe to go on from; and of who planned. gRPC-free. Thread-safety: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "proto/legoai/v1/job.pb.h"
#include "proto/legoai/v1/plan.pb.h"

namespace legoai::server {

// What plans depend on beside the request: the build, whose version follows from planner, simulator and the trainer that it
// captures (core/process/build_version.h), and this host's processor, since lego-sim asks LibTorch which kernels a CPU has.
std::string PlannedBy();

// "plan:" and SHA-256 as hex. The budget of seconds is left out: a plan that it has cut short is never kept (IsCacheable).
std::string PlanKey(const v1::PlanRequest& request, std::string_view planned_by);

// Whether another planning would give the same: nothing was left out for lack of time, and no simulation failed, which might be
// the machine's fault.
bool IsCacheable(const v1::PlanResult& result);

v1::CachedPlan MakeCachedPlan(std::string_view key, const v1::PlanResult& result, int64_t now_us);

// The plan, if it is the one of `request`, whose key this is. Errors: DataLoss for a row that is not what was stored, or that
// cannot be an answer to the request.
absl::StatusOr<v1::PlanResult> OpenCachedPlan(const v1::CachedPlan& cached, std::string_view key, const v1::PlanRequest& request);

// A line of the log about its error.
std::string RefusedPlanText(const absl::Status& error);

}  // namespace legoai::server
