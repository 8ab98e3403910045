// The first half of planning, without simulation: which candidates are legal and may fit, and in which order to capture them.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "planner/space.h"
#include "proto/legoai/v1/plan.pb.h"
#include "simulator/symbolic/roofline_estimate.h"

namespace legoai::planner {

struct Survivor {
  v1::Recipe recipe;
  sim::RooflineEstimate roofline;  // for the order, and for ranking entries marked as estimates
  int64_t bound_bytes = 0;         // lower bound of the memory needed
};

struct BoundedRecipe {
  v1::Recipe recipe;
  int64_t bound_bytes = 0;
};

struct PrunedCandidate {
  v1::Recipe recipe;
  std::string rule, reason;
};

struct LegalSpace {
  int64_t size = 0;
  std::map<std::string, int64_t> pruned;           // by rule
  std::map<std::string, std::string> reasons;      // by rule, for the first candidate it pruned
  std::vector<PrunedCandidate> pruned_candidates;  // only if requested
  int64_t bounded_out = 0;
  std::vector<BoundedRecipe> closest;  // those bounded out with the smallest bounds; all of them if requested
  std::vector<Survivor> survivors;     // fastest first by the roofline estimate
  int64_t undecided = 0;               // not examined before time ran out
};

// `cancel` and `out_of_time` are polled for each candidate; they may be empty. Errors: FieldError of a constraint with an unknown
// key or an unsupported value, or that contradicts resume_from; Cancelled.
absl::StatusOr<LegalSpace> PruneSpace(const v1::PlanRequest& request, const std::function<bool()>& cancel = {},
                                      const std::function<bool()>& out_of_time = {});

// The closed-form step time of a legal recipe on the request's cluster, whose tiers cover all devices.
absl::StatusOr<sim::RooflineEstimate> EstimateTime(const v1::PlanRequest& request, const v1::Recipe& recipe);

// A lower bound of the step time that a simulation of this legal recipe gives there, in any variant that is tried last
// (simulator/symbolic/step_bound.h).
absl::StatusOr<double> BoundTime(const v1::PlanRequest& request, const v1::Recipe& recipe);

// The fewest nodes of the same kind, more than the request's, on which a recipe is legal and within the memory bound: a lower
// bound of what is needed.
struct LargerCluster {
  int64_t nodes = 0;                     // the largest number tried
  std::optional<BoundedRecipe> fitting;  // the recipe there; none: nothing can fit on up to that many nodes
};

// Takes seconds at most. Errors: those of PruneSpace.
absl::StatusOr<LargerCluster> SmallestThatMayFit(v1::PlanRequest request);

// Bytes of a device that tensors may use.
int64_t UsableBytes(const v1::Cluster& cluster);

}  // namespace legoai::planner
