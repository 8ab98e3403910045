// The first half of planning, without simulation: which candidates are legal, may fit, and in which order to capture them.
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
  sim::RooflineEstimate roofline;  // for the order, and where a ranking says that it is an estimate
  int64_t bound_bytes = 0;         // at least this much memory is needed
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
  std::map<std::string, std::string> reasons;      // by rule, of the first that it pruned
  std::vector<PrunedCandidate> pruned_candidates;  // only if asked for
  int64_t bounded_out = 0;
  std::vector<BoundedRecipe> closest;  // the bounded-out with the smallest bounds, all of them if asked for
  std::vector<Survivor> survivors;     // fastest first by the roofline estimate
  int64_t undecided = 0;               // not looked at before the time was over
};

// `cancel` and `out_of_time` are polled for each candidate; they may be empty. Errors: FieldError of a constraint that names an
// unknown key or a value that is not supported, or contradicts resume_from; Cancelled.
absl::StatusOr<LegalSpace> PruneSpace(const v1::PlanRequest& request, const std::function<bool()>& cancel = {},
                                      const std::function<bool()>& out_of_time = {});

// The closed-form step time of a legal recipe on the request's cluster, whose tiers reach over all devices.
absl::StatusOr<sim::RooflineEstimate> EstimateTime(const v1::PlanRequest& request, const v1::Recipe& recipe);

// The fewest nodes of the same kind, more than the request's, on which a recipe is legal and not above the memory bound: a lower
// bound of what is needed.
struct LargerCluster {
  int64_t nodes = 0;                     // up to which was looked
  std::optional<BoundedRecipe> fitting;  // the recipe there; none: nothing may fit on any number of nodes up to that
};

// Takes seconds at most. Errors: those of PruneSpace.
absl::StatusOr<LargerCluster> SmallestThatMayFit(v1::PlanRequest request);

// Bytes of a device that tensors may take.
int64_t UsableBytes(const v1::Cluster& cluster);

}  // namespace legoai::planner
