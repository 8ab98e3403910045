#include "planner/compare.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/recipe/chunks.h"
#include "core/schedule/timeline.h"
#include "planner/ranking.h"

namespace legoai::planner {
namespace {

constexpr double kFastestLink = 100;   // times its bandwidth: nobody can buy more than that
constexpr int64_t kLargestBatch = 64;  // times the global batch

std::string PercentText(double share) { return absl::StrFormat("%.*f %%", share < 0.0995 ? 1 : 0, 100 * share); }
std::string TimesText(double times) { return absl::StrFormat("%.*f times", times < 9.95 ? 1 : 0, times); }
// From here on "x times" reads better than "x % more".
constexpr double kTimesFrom = 1.95;

// Powers of ten, as links are sold by them.
std::string DecimalBytes(double bytes) {
  constexpr const char* kUnits[] = {"B", "kB", "MB", "GB", "TB", "PB"};
  size_t unit = 0;
  for (; bytes >= 999.5 && unit + 1 < std::size(kUnits); ++unit) bytes /= 1000;
  return absl::StrFormat("%.3g %s", bytes, kUnits[unit]);
}

const char* UseName(sim::LinkUse use) {
  switch (use) {
    case sim::LinkUse::kTensor: return "tensor parallelism";
    case sim::LinkUse::kContext: return "context parallelism";
    case sim::LinkUse::kShard: return "sharding";
    case sim::LinkUse::kReplicate: return "the reduction over replicas";
    case sim::LinkUse::kPipeline: break;
  }
  return "the pipeline";
}

int64_t Microbatches(const v1::Recipe& recipe) {
  const auto& p = recipe.parallelism();
  const int64_t size =
      p.pipeline_parallel_degree() > 1 ? p.pipeline_parallel_microbatch_size() : recipe.training().local_batch_size();
  const int64_t ranks = p.data_parallel_replicate_degree() * p.data_parallel_shard_degree();
  return recipe.training().global_batch_size() / std::max<int64_t>(1, ranks * size);
}

// The step of `other` as a share of the winner's after a change: the simulated times, moved as the closed forms move.
using Change = std::function<void(v1::PlanRequest*, v1::Recipe*)>;
std::optional<double> RatioAfter(const v1::PlanRequest& request, const SimulatedRecipe& winner, const SimulatedRecipe& other,
                                 const Change& change) {
  const auto after = [&](const SimulatedRecipe& one) -> std::optional<double> {
    v1::PlanRequest changed = request;
    v1::Recipe recipe = one.survivor->recipe;
    change(&changed, &recipe);
    const auto estimate = EstimateTime(changed, recipe);
    if (!estimate.ok() || one.survivor->roofline.step_seconds <= 0) return std::nullopt;
    return one.estimate->step_time_seconds() * estimate->step_seconds / one.survivor->roofline.step_seconds;
  };
  const auto w = after(winner), o = after(other);
  if (!w || !o || *w <= 0) return std::nullopt;
  return *o / *w;
}

std::string FasterLink(const v1::PlanRequest& request, const SimulatedRecipe& winner, const SimulatedRecipe& other, int tier) {
  const auto ratio = [&](double times) {
    return RatioAfter(request, winner, other, [&](v1::PlanRequest* changed, v1::Recipe*) {
      v1::Link* const link = changed->mutable_cluster()->mutable_tiers(tier)->mutable_link();
      link->set_bandwidth_bytes_per_second(times * link->bandwidth_bytes_per_second());
    });
  };
  const auto most = ratio(kFastestLink);
  if (!most) return "";
  if (*most > 1) return "; no faster link alone would make up for it";
  double slow = 1, fast = kFastestLink;
  for (int i = 0; i < 20; ++i) {
    const double middle = std::sqrt(slow * fast);
    (ratio(middle).value_or(0) > 1 ? slow : fast) = middle;
  }
  return absl::StrCat("; with this link ", fast < kTimesFrom ? PercentText(fast - 1) + " faster" : TimesText(fast) + " as fast",
                      " they would be equal");
}

// GPipe and looped BFS keep all microbatches in memory: a larger batch is no way out for them.
std::string LargerBatch(const v1::PlanRequest& request, const SimulatedRecipe& winner, const SimulatedRecipe& other) {
  if (other.survivor->recipe.parallelism().pipeline_parallel_schedule() == v1::GPIPE ||
      other.survivor->recipe.parallelism().pipeline_parallel_schedule() == v1::LOOPED_BFS) {
    return "";
  }
  for (int64_t times = 2; times <= kLargestBatch; times *= 2) {
    const auto ratio = RatioAfter(request, winner, other, [times](v1::PlanRequest* changed, v1::Recipe* recipe) {
      changed->set_global_batch(times * changed->global_batch());
      v1::Training* const training = recipe->mutable_training();
      training->set_global_batch_size(times * training->global_batch_size());
      const bool all_at_once = recipe->parallelism().pipeline_parallel_degree() > 1;
      if (all_at_once) training->set_local_batch_size(times * training->local_batch_size());
    });
    if (!ratio) return "";
    if (*ratio <= 1) return absl::StrCat("; with a global batch ", times, " times as large it would be as fast");
  }
  return "";
}

std::string CommunicationCause(const v1::PlanRequest& request, const SimulatedRecipe& winner, const SimulatedRecipe& other) {
  const auto &w = winner.survivor->roofline.loads, &o = other.survivor->roofline.loads;
  size_t most = 0;
  for (size_t kind = 1; kind < sim::kLinkUses; ++kind) {
    if (o[kind].seconds - w[kind].seconds > o[most].seconds - w[most].seconds) most = kind;
  }
  if (o[most].tier < 0 || o[most].seconds <= w[most].seconds) return "";
  return absl::StrCat(
      ": ", LinkText(request.cluster(), static_cast<sim::LinkUse>(most), o[most], other.estimate->breakdown().compute_seconds()),
      FasterLink(request, winner, other, o[most].tier));
}

std::string BubbleCause(const v1::PlanRequest& request, const SimulatedRecipe& winner, const SimulatedRecipe& other) {
  const std::string bubble = BubbleText(other.estimate->recipe(), request.model().num_hidden_layers());
  return bubble.empty() ? "" : absl::StrCat(": ", bubble, LargerBatch(request, winner, other));
}

std::string ComputeCause(const SimulatedRecipe& winner, const SimulatedRecipe& other) {
  const auto mode = [](const SimulatedRecipe& one) { return one.estimate->recipe().activation_checkpoint().mode(); };
  if (mode(other) == mode(winner) || mode(other) == v1::AC_NONE || mode(winner) == v1::AC_FULL) return "";
  return absl::StrCat(": checkpointing runs ", mode(other) == v1::AC_FULL ? "each block's forward" : "a part of the forward",
                      " twice");
}

std::string LaunchCause(const SimulatedRecipe& winner, const SimulatedRecipe& other) {
  if (winner.estimate->recipe().compile().enable() && !other.estimate->recipe().compile().enable())
    return ": what the host takes for an eager step, which graph mode spares";
  const int64_t w = Microbatches(winner.estimate->recipe()), o = Microbatches(other.estimate->recipe());
  return o > w ? absl::StrCat(": the host dispatches ", o, " microbatches in place of ", w) : "";
}

}  // namespace

std::string StepTimeText(double ratio) {
  if (IsNearTie(ratio, 1) && IsNearTie(1, ratio)) return "is as fast, within the noise of the prediction";
  if (ratio < 1) return absl::StrCat("takes ", PercentText(1 - ratio), " less time");
  if (ratio < kTimesFrom) return absl::StrCat("is ", PercentText(ratio - 1), " slower");
  return absl::StrCat("takes ", TimesText(ratio), " as long");
}

std::string LinkText(const v1::Cluster& cluster, sim::LinkUse use, const sim::LinkLoad& load, double compute_seconds) {
  const v1::Tier& tier = cluster.tiers(load.tier);
  const std::string& name = tier.link().type().empty() ? tier.name() : tier.link().type();
  const std::string hides = load.runs_beside_compute
                                ? absl::StrFormat("beside %.3g s of compute that can hide it", compute_seconds)
                                : "which nothing hides";
  return absl::StrCat(UseName(use), " puts ", DecimalBytes(load.bytes), " a step on each device's ", name, " (",
                      DecimalBytes(load.bytes_per_second), "/s reached): ", absl::StrFormat("%.3g s", load.seconds), ", ", hides);
}

std::string BubbleText(const v1::Recipe& recipe, int64_t layers) {
  const int64_t stages = recipe.parallelism().pipeline_parallel_degree(), microbatches = Microbatches(recipe);
  if (stages <= 1 || microbatches < 1) return "";
  if (const auto listed = parallel::ListedSchedule(recipe.parallelism())) {
    const std::string share = PercentText(parallel::TimelineOf(*listed).bubble_share);
    return absl::StrCat("(", share, " of a stage's time as the schedule is listed)");
  }
  const int64_t locals = parallel::ChunkCount(recipe.parallelism(), layers) / stages;
  const bool parts = parallel::PartsBackward(recipe.parallelism().pipeline_parallel_schedule());
  const int64_t divisor = locals * microbatches * (parts ? 3 : 1);
  const std::string share = PercentText(static_cast<double>(stages - 1) / static_cast<double>(divisor));
  const std::string factors = absl::StrCat(parts ? "3 x " : "", locals > 1 ? absl::StrCat(locals, " x ") : "", microbatches);
  const char* const formula = parts ? (locals > 1 ? "(3 v m)" : "(3 m)") : (locals > 1 ? "(v m)" : "m");
  const bool product = parts || locals > 1;
  return absl::StrCat("(p - 1) / ", formula, " = ", stages - 1, " / ", product ? "(" : "", factors, product ? ")" : "", ", ",
                      share, " of a stage's work");
}

std::string CauseText(const v1::PlanRequest& request, const SimulatedRecipe& winner, const SimulatedRecipe& other) {
  struct Part {
    const char* name;
    double seconds;
    std::function<std::string()> cause;
  };
  if (IsNearTie(other.estimate->step_time_seconds(), winner.estimate->step_time_seconds())) return "";
  const auto &w = winner.estimate->breakdown(), &o = other.estimate->breakdown();
  const Part parts[] = {
      {"compute", o.compute_seconds() - w.compute_seconds(), [&] { return ComputeCause(winner, other); }},
      {"exposed communication", o.exposed_communication_seconds() - w.exposed_communication_seconds(),
       [&] { return CommunicationCause(request, winner, other); }},
      {"pipeline bubble", o.bubble_seconds() - w.bubble_seconds(), [&] { return BubbleCause(request, winner, other); }},
      {"launch overhead", o.launch_seconds() - w.launch_seconds(), [&] { return LaunchCause(winner, other); }},
      {"the optimizer", o.optimizer_seconds() - w.optimizer_seconds(), [] { return std::string(); }}};
  const Part& largest =
      *std::max_element(std::begin(parts), std::end(parts), [](auto& a, auto& b) { return a.seconds < b.seconds; });
  if (largest.seconds <= 0) return "";
  return absl::StrCat(", mostly ", largest.name, absl::StrFormat(" (+%.3g s)", largest.seconds), largest.cause());
}

}  // namespace legoai::planner
