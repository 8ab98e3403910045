// The findings of a planning run, for ranking and explaining. The caller owns what pointers refer to.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "core/recipe/keep_policy.h"
#include "planner/last_choices.h"
#include "planner/legal.h"
#include "proto/legoai/v1/estimate.pb.h"
#include "proto/legoai/v1/plan.pb.h"
#include "proto/legoai/v1/recipe.pb.h"

namespace legoai::planner {

// What a policy of activation checkpointing (auto_sac.h) gained.
struct PolicyGain {
  double seconds = 0, full_seconds = 0;  // of recomputation in a step: the policy's, and full checkpointing's
  double saved_share = 0;                // of full_seconds
  int64_t none_peak_bytes = 0, full_peak_bytes = 0;  // of the fullest device with nothing and with everything recomputed
};

struct SimulatedRecipe {
  const v1::Estimate* estimate = nullptr;
  const Survivor* survivor = nullptr;  // the same recipe in closed form
  const PolicyGain* gain = nullptr;    // of a recipe with a policy that the plan made
};

// One recipe with FSDP's collectives in planned buckets, by block and of each parameter alone. Null: that failed, or was not
// reached.
struct BucketedRecipe {
  const v1::Estimate *planned = nullptr, *by_block = nullptr, *alone = nullptr;
};

// One recipe again with one of the last choices made. Null: that failed, or was not reached.
struct TriedChoice {
  const LastChoice* choice = nullptr;
  const v1::Estimate *without = nullptr, *with = nullptr;
};

struct PlanFacts {
  const v1::PlanRequest* request = nullptr;
  const LegalSpace* space = nullptr;
  std::vector<SimulatedRecipe> ranked;         // fitting ones, best first
  std::vector<SimulatedRecipe> unfit;          // the others, in the order of the space
  std::vector<const Survivor*> not_simulated;  // best first by the closed forms
  int64_t planned = 0;                         // planned simulations, including completed ones
  int64_t slower = 0;                          // not simulated, and certain to be slower than all that are shown
  bool stopped_early = false;                  // the budget of seconds ended before `planned`
  std::vector<BucketedRecipe> bucketed;        // of the best, where fsdp_bucketing is left to the plan
  std::vector<TriedChoice> attempts;           // on the best, in the order in which they were tried
  std::optional<int64_t> policies = {};        // made for so many layouts; nothing if no plan with policies was asked for
  std::optional<LargerCluster> larger;         // set if nothing fits
};

// The choices for which a plan's explanation shows alternatives. Thread-safety: constants.
struct Choice {
  const char* name;
  int64_t (*value)(const v1::Recipe&);  // a recipe's decision
};

inline constexpr Choice kChoices[] = {
    {"checkpointing",
     [](const v1::Recipe& r) {
       const v1::ActivationCheckpoint& section = r.activation_checkpoint();
       return 2 * int64_t{section.mode()} + parallel::KeepsOperators(section);
     }},
    {"tensor parallel degree", [](const v1::Recipe& r) { return r.parallelism().tensor_parallel_degree(); }},
    {"number of stages", [](const v1::Recipe& r) { return r.parallelism().pipeline_parallel_degree(); }},
    {"ZeRO stage", [](const v1::Recipe& r) { return r.parallelism().zero_stage(); }},
    {"split into replicas", [](const v1::Recipe& r) { return r.parallelism().data_parallel_replicate_degree(); }},
    {"precision", [](const v1::Recipe& r) -> int64_t { return r.training().mixed_precision_param(); }},
    {"context parallel degree", [](const v1::Recipe& r) { return r.parallelism().context_parallel_degree(); }},
    {"group to reshard over", [](const v1::Recipe& r) { return r.parallelism().fsdp_reshard_after_forward_size(); }},
    {"keeping of gathered inputs",
     [](const v1::Recipe& r) -> int64_t { return r.parallelism().sequence_parallel_gather_in_backward(); }},
    {"number of layers gathered ahead", [](const v1::Recipe& r) { return r.parallelism().fsdp_prefetch_depth(); }},
};
inline constexpr size_t kChoiceCount = sizeof(kChoices) / sizeof(kChoices[0]);

// How much of a stage's device memory is left, in bytes; used for ranking, explaining and printing.

// What tensors may use: capacity minus the reserve.
inline int64_t UsableBytes(const v1::StageEstimate& stage) { return stage.capacity_bytes() - stage.reserve_bytes(); }
// What is left of that at the peak; negative if the stage does not fit.
inline int64_t HeadroomBytes(const v1::StageEstimate& stage) { return UsableBytes(stage) - stage.peak_allocated_bytes(); }
// The stage with the smallest headroom. `estimate` has at least one.
inline const v1::StageEstimate& FullestStage(const v1::Estimate& estimate) {
  return *std::min_element(estimate.stages().begin(), estimate.stages().end(),
                           [](const auto& a, const auto& b) { return HeadroomBytes(a) < HeadroomBytes(b); });
}

}  // namespace legoai::planner
