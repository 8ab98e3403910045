// A step time in closed form, to order what is captured: an estimate, not a prediction (every result that is shown comes from a
// capture). Matrix products and attention at the device's efficiencies, a rough count of memory traffic, collectives by
// collective_cost.h with the overlap that the schedule allows, the pipeline's bubble, the host's dispatch. Seed 004 (24)-(37) for
// the terms of communication and the bubble.
//
// Torch-free. Thread-safety: a pure function. Units: seconds.
#pragma once

#include "absl/status/statusor.h"
#include "proto/legoai/v1/cluster.pb.h"
#include "simulator/symbolic/link_load.h"
#include "simulator/symbolic/stage_sizes.h"

namespace legoai::sim {

struct RooflineEstimate {
  double step_seconds = 0;
  double compute_seconds = 0;        // of the slowest stage, all microbatches
  double communication_seconds = 0;  // that nothing hides
  double bubble_seconds = 0;
  double optimizer_seconds = 0;
  LinkLoads loads;  // of the stage where each is most, whatever hides it
};

// Errors: those of the cost models (a device without peaks or efficiencies, a world larger than the cluster).
absl::StatusOr<RooflineEstimate> EstimateStep(const parallel::ResolvedRecipe& resolved, const v1::Cluster& cluster);

}  // namespace legoai::sim
