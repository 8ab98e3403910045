// From a model, a batch and a cluster to a ranked list of recipes.
//
// Every candidate of the space ends in exactly one count: pruned by a named rule, bounded out (its closed-form memory bound
// already exceeds the device), captured, failed, or not reached. Captured ones that fit are ranked by simulated step time, those
// that predictions do not tell apart by headroom (ranking.h); after them, where there is room, those not reached by the
// closed-form estimate, marked so. What does not fit is kept with its reason.
//
// How many are simulated, and which, follows from the request (schedule.h): the plan is the same on any machine under any load.
// The budget of seconds only ends it early, and then the explanation says so. It does so only when a recipe is known to fit:
// until then simulations go on, so that a busy machine makes a plan worse and not empty.
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
  int64_t to_capture = 0;        // of them, that are to be simulated, as far as is known
  int64_t captured = 0;          // failed ones included
  double best_step_seconds = 0;  // 0: none fits so far
  double elapsed_seconds = 0;
  std::vector<v1::RankedRecipe> best = {};  // of those that fit so far, as they would be ranked; without recipe_toml
};

// How many are ranked where a request does not say.
inline constexpr int64_t kDefaultTop = 10;

// How many of the best a PlanProgress has.
inline constexpr int64_t kBestSoFar = 10;

// A budget for those who name none: several times what the simulations take on two cores, for the largest models too, so that
// only a machine in trouble is cut short.
inline constexpr absl::Duration kDefaultBudget = absl::Minutes(5);

// How long captures may go on that are under way when the budget ends; then they are stopped and count as not reached.
inline constexpr absl::Duration kGrace = absl::Seconds(1);

// How long beyond the budget recipes are simulated while none is known to fit. Longer than the limit of one simulation
// (lego_sim_pool.h), so that some end in it however slow the machine is.
inline constexpr absl::Duration kFirstFitLimit = absl::Minutes(10);

// A request without budget_seconds simulates all that may fit. Its min_headroom_bytes are left free beside the device's reserve;
// the headrooms of the result have them in.
//
// `progress` is called after the enumeration, after each capture, and each second while captures are waited for; `cancel` is
// asked for each candidate of the space and while captures are waited for; both may be empty. When the budget does not end it,
// the result is the same in every run but for `seconds`. Errors: InvalidArgument for a request or constraint that cannot be,
// Cancelled; nothing is under way afterwards. That nothing fits is no error: `ranked` is empty and `rejected` begins with the
// closest to fitting. Neither is it that kFirstFitLimit ended first: then `ranked` has estimated entries only, and no recipe is
// known to fit (ranking.h, HasRecipe). `steady` is a monotonic clock; empty: this machine's.
absl::StatusOr<v1::PlanResult> Plan(const v1::PlanRequest& request, Estimator& estimator,
                                    const std::function<void(const PlanProgress&)>& progress = {},
                                    const std::function<bool()>& cancel = {}, const std::function<absl::Duration()>& steady = {});

}  // namespace legoai::planner
