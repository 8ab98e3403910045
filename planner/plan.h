// From a model, a batch and a cluster to a ranked list of recipes.
//
// Every candidate of the space ends in exactly one count: pruned by a named rule, bounded out (its closed-form memory bound
// already exceeds the device), captured, failed, or not reached. Captured ones that fit are ranked by simulated step time, and
// near ties by headroom (ranking.h); if there is room, candidates that were not reached follow by closed-form estimate, marked as
// such. Those that do not fit are kept with the reason.
//
// The best recipes are simulated once more with parameters gathered further ahead, where communication is exposed, as recipes of
// the space like any other.
//
// Where compile.fsdp_bucketing is "auto", recipes are compared with FSDP's collectives by block; then the best are simulated once
// more, in planned buckets and with collectives of each parameter. What wins has compile.fsdp_buckets or needs none: no plan says
// "auto".
//
// Where programs train (CPUs), graph mode, asynchronous tensor parallel and planned buckets are tried last, each on the best
// recipes, unless the base or a constraint names its key (last_choices.h). One that is simulated to be faster by more than a near
// tie is ranked, and the explanation says what each bought or would have cost.
//
// With activation_checkpoint.mode = "auto", in the base or as a constraint, the layouts that would be fastest without
// recomputation and that memory holds back get a policy each (auto_sac.h), which fills memory_budget_gib or, if that is 0, what a
// device has for tensors. These are recipes of the space too. Recipes above the budget do not fit.
//
// A candidate whose lower bound of the step time (simulator/symbolic/step_bound.h) is above the simulated times of as many
// recipes as are shown, by more than a near tie, is not simulated: neither it nor what is tried on it could be among them. It
// counts as not reached, and the explanation says how many of these are so. Not by memory, nor where policies or buckets are
// asked for, whose layouts may be slow at first.
//
// The request alone determines which and how many candidates are simulated (schedule.h): the plan is the same on any machine
// under any load. The budget of seconds only ends planning early, and the explanation then says so. It does not apply before a
// recipe is known to fit, so that a busy machine makes a plan worse but not empty.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "planner/estimates.h"
#include "proto/legoai/v1/plan.pb.h"

namespace legoai::planner {

struct PlanProgress {
  int64_t space = 0;             // candidates
  int64_t to_capture = 0;        // of these, to be simulated, as far as is known
  int64_t captured = 0;          // failed ones included
  double best_step_seconds = 0;  // 0: none fits so far
  double elapsed_seconds = 0;
  std::vector<v1::RankedRecipe> best = {};  // those that fit so far, ranked; without recipe_toml
};

// How many are ranked by default.
inline constexpr int64_t kDefaultTop = 10;

// How many of the best a PlanProgress has.
inline constexpr int64_t kBestSoFar = 10;

// The default budget: several times what the simulations take on two cores, even for the largest models, so that only an
// overloaded machine is cut short.
inline constexpr absl::Duration kDefaultBudget = absl::Minutes(5);

// How long running captures may continue when the budget ends; then they are stopped and count as not reached.
inline constexpr absl::Duration kGrace = absl::Seconds(1);

// How long beyond the budget recipes are simulated while none is known to fit. Longer than the limit of one simulation
// (lego_sim_pool.h), so that some complete however slow the machine is.
inline constexpr absl::Duration kFirstFitLimit = absl::Minutes(10);

// A request without budget_seconds simulates all that may fit, whatever their bounds. Its min_headroom_bytes are kept free in
// addition to the device's reserve; the headrooms of the result include them.
//
// `progress` is called after the enumeration, after each capture, and every second while waiting for captures; `cancel` is polled
// for each candidate of the space and while waiting; both may be empty. Unless the budget ends it, the result is the same in
// every run except for `seconds`. Errors: InvalidArgument for an invalid request or constraint, Cancelled; nothing is running
// afterwards. It is not an error if nothing fits: `ranked` is then empty and `rejected` begins with the closest to fitting. Nor
// is it an error if kFirstFitLimit ends first: then `ranked` has only estimated entries, and no recipe is known to fit
// (ranking.h, HasRecipe). `steady` is a monotonic clock; empty: this machine's.
absl::StatusOr<v1::PlanResult> Plan(const v1::PlanRequest& request, Estimator& estimator,
                                    const std::function<void(const PlanProgress&)>& progress = {},
                                    const std::function<bool()>& cancel = {}, const std::function<absl::Duration()>& steady = {});

}  // namespace legoai::planner
