// Plans FSDP's buckets for one recipe: Algorithm 1 of SimpleFSDP (planner/autowrap) over the times and bytes of its captured
// step, and of what the algorithm proposes the plan that simulates best. So no plan rests on the algorithm's own model of a step.
//
// One capture at a time in a process; afterwards const and thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "core/recipe/resolved_recipe.h"
#include "planner/autowrap/autowrap.h"
#include "proto/legoai/v1/cluster.pb.h"
#include "simulator/capture/capture_stages.h"
#include "simulator/cost/collective_cost.h"
#include "simulator/cost/compute_cost.h"
#include "simulator/memory/memory_simulator.h"

namespace legoai::sim {

class BucketSearch {
 public:
  // `resolved` has fsdp_bucketing "auto". `memory`: as the step's own memory is simulated. Errors: those of CaptureStages and of
  // the cost models.
  static absl::StatusOr<BucketSearch> Create(const parallel::ResolvedRecipe& resolved, const v1::Cluster& cluster,
                                             const MemoryOptions& memory);

  // Of each pipeline stage, what the algorithm decides by. Empty passes where nothing is gathered.
  const std::vector<planner::WrapStage>& stages() const { return profiles_; }

  struct Outcome {
    double step_seconds = 0, exposed_seconds = 0;
    int64_t peak_bytes = 0;  // of the fullest stage, as allocated
    bool fits = false;
  };
  // The step with these buckets, simulated; without buckets of its own the backward has the forward's. Without any each parameter
  // has its own collectives.
  absl::StatusOr<Outcome> Evaluate(const planner::WrapBuckets& forward, const planner::WrapBuckets& backward = {}) const;

  // Of the proposals, and of the best one's halves beside the others', that fit and whose step is within 1 % of the shortest, the
  // one with the smallest peak; if none fits, the one with the smallest peak of all.
  absl::StatusOr<planner::WrapPlan> Best() const;

 private:
  BucketSearch() = default;

  v1::Cluster cluster_;
  MemoryOptions memory_;
  bool reorder_ = false;
  std::vector<CapturedStage> captured_;  // each gather at its use
  std::vector<planner::WrapStage> profiles_;
  std::shared_ptr<const ComputeCostModel> compute_;
  std::shared_ptr<const CollectiveCostModel> collectives_;
};

// The recipe with what BucketSearch finds in place of "auto": "manual", or "none" where nothing is gathered. Errors: those of
// BucketSearch.
absl::StatusOr<parallel::ResolvedRecipe> WithPlannedBuckets(const parallel::ResolvedRecipe& resolved, const v1::Cluster& cluster,
                                                            const MemoryOptions& memory);

}  // namespace legoai::sim
