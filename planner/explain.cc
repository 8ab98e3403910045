#include "planner/explain.h"

#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "planner/choice.h"
#include "planner/headroom.h"
#include "proto/quantity_text.h"

namespace legoai::planner {
namespace {

// Step times this close are called equal; a device with less room than this is called full.
constexpr double kNearTie = 0.01, kSafeHeadroom = 0.05;

std::string Share(double part, double whole) { return absl::StrFormat("%.0f %%", whole > 0 ? 100 * part / whole : 0); }

// Which part of the step makes `other` slower than `winner`, by the largest difference.
std::string LargestDifference(const v1::Estimate& winner, const v1::Estimate& other) {
  struct Part {
    const char* name;
    double seconds;
  };
  const auto &w = winner.breakdown(), &o = other.breakdown();
  Part parts[] = {{"compute", o.compute_seconds() - w.compute_seconds()},
                  {"exposed communication", o.exposed_communication_seconds() - w.exposed_communication_seconds()},
                  {"pipeline bubble", o.bubble_seconds() - w.bubble_seconds()},
                  {"launch overhead", o.launch_seconds() - w.launch_seconds()},
                  {"the optimizer", o.optimizer_seconds() - w.optimizer_seconds()}};
  const Part& largest =
      *std::max_element(std::begin(parts), std::end(parts), [](auto& a, auto& b) { return a.seconds < b.seconds; });
  if (largest.seconds <= 0) return "";
  return absl::StrFormat(", mostly %s (+%.4g s)", largest.name, largest.seconds);
}

// What the times rest on.
std::string CostModels(const v1::Estimate& estimate) {
  std::vector<std::string> shares;
  for (const auto& model : estimate.cost_models()) {
    shares.push_back(absl::StrCat(model.name(), " (", Share(model.share_of_compute_time(), 1), ")"));
  }
  return shares.empty() ? "" : absl::StrCat(" Operators are timed by ", absl::StrJoin(shares, ", "), ".");
}

std::string ExplainWinner(const v1::Estimate& winner) {
  const auto& parts = winner.breakdown();
  const double step = winner.step_time_seconds();
  const auto& stage = FullestStage(winner);
  return absl::StrCat("The fastest recipe that fits is ", Summarize(winner.recipe()), ": ", absl::StrFormat("%.4g", step),
                      " s a step, of which ", Share(parts.compute_seconds(), step), " compute, ",
                      Share(parts.exposed_communication_seconds(), step), " exposed communication, ",
                      Share(parts.bubble_seconds(), step), " pipeline bubble, ", Share(parts.launch_seconds(), step), " launch, ",
                      Share(parts.optimizer_seconds(), step), " optimizer. Its fullest device takes ",
                      BytesText(stage.peak_allocated_bytes()), " of ", BytesText(UsableBytes(stage)), " usable, at ",
                      stage.peak_at(), ".", CostModels(winner));
}

std::string Slower(const v1::Estimate& winner, const v1::Estimate& other) {
  const double more = other.step_time_seconds() / winner.step_time_seconds() - 1;
  return absl::StrCat(Summarize(other.recipe()), " is ", absl::StrFormat("%.1f %%", 100 * more), " slower",
                      LargestDifference(winner, other));
}

std::string ByEstimate(double ratio) {
  const double percent = 100 * (ratio - 1);
  return absl::StrFormat("%.1f %% %s than the fastest one by the closed-form estimate", std::abs(percent),
                         percent < 0 ? "faster" : "slower");
}

// The best recipe that decides this choice otherwise; where none that was simulated fits: what was not reached, or, if all are
// known, the one closest to fitting; if none is known, nothing. `told`: whether it was the second one.
std::string ExplainChoice(const Choice& choice, const std::vector<v1::Estimate>& ranked, const v1::PlanResult& result,
                          const NotReached& not_reached, bool* told) {
  const int64_t chosen = choice.value(ranked[0].recipe());
  auto otherwise = [&](const auto& has_recipe) { return choice.value(has_recipe.recipe()) != chosen; };
  const auto other = std::find_if(ranked.begin(), ranked.end(), otherwise);
  if (other == ranked.begin() + 1) *told = true;
  if (other != ranked.end()) return absl::StrCat("\n- ", choice.question, ": ", Slower(ranked[0], *other), ".");
  auto differs = [&](const NotReached::Entry& entry) { return choice.value(*entry.recipe) != chosen; };
  const auto& entries = not_reached.entries;
  if (const int64_t count = std::count_if(entries.begin(), entries.end(), differs); count > 0) {
    const auto& best = *std::find_if(entries.begin(), entries.end(), differs);
    return absl::StrCat("\n- ", choice.question, ": ", count, " of this kind were not reached within the budget of ",
                        absl::StrFormat("%g s", not_reached.budget_seconds), "; the best of them, ", Summarize(*best.recipe),
                        ", is ", ByEstimate(best.relative_time), ".");
  }
  const auto large = std::find_if(result.rejected().begin(), result.rejected().end(), [&](const auto& rejected) {
    return rejected.rule() == "out_of_memory" && otherwise(rejected);
  });
  if (large == result.rejected().end()) return "";
  // Failures and what was not even looked at may be of this kind.
  const bool all_known = result.failed() == 0 && result.not_reached() == static_cast<int64_t>(entries.size());
  return absl::StrCat("\n- ", choice.question, all_known ? ": none fits; " : ": none that was looked at fits; ",
                      Summarize(large->recipe()), ": ", large->reason(), ".");
}

// A winner that fills its device to the brim may fail where the allocator fragments: the fastest that leaves more.
std::string ExplainHeadroom(const std::vector<v1::Estimate>& ranked) {
  auto share = [](const v1::Estimate& estimate) {
    const auto& stage = FullestStage(estimate);
    return static_cast<double>(HeadroomBytes(stage)) / static_cast<double>(std::max<int64_t>(1, UsableBytes(stage)));
  };
  if (share(ranked[0]) >= kSafeHeadroom) return "";
  std::string text = absl::StrFormat("\n- It leaves %.1f %% of the memory, which fragmentation may take", 100 * share(ranked[0]));
  const auto safe = std::find_if(ranked.begin(), ranked.end(), [&](const auto& e) { return share(e) >= kSafeHeadroom; });
  if (safe == ranked.end()) return text + "; none that was simulated leaves more than " + Share(kSafeHeadroom, 1) + ".";
  return absl::StrCat(text, "; the fastest that leaves at least ", Share(kSafeHeadroom, 1), ", ", Slower(ranked[0], *safe), ".");
}

// Of the first ones, those that no prediction tells apart.
int64_t NearTies(const std::vector<v1::Estimate>& ranked) {
  const double close = ranked[0].step_time_seconds() * (1 + kNearTie);
  return std::count_if(ranked.begin(), ranked.end(), [close](const auto& e) { return e.step_time_seconds() <= close; });
}

// The rules that leave nothing, those that drop most first.
std::string ExplainIllegal(const v1::PlanResult& result, const Reasons& reasons) {
  std::vector<std::pair<std::string, int64_t>> rules(result.pruned().begin(), result.pruned().end());
  std::sort(rules.begin(), rules.end(),
            [](const auto& a, const auto& b) { return std::tie(b.second, a.first) < std::tie(a.second, b.first); });
  std::string text = absl::StrCat("No recipe of the space is legal for this model, batch and cluster. Of ", result.space(), ":");
  for (const auto& [rule, count] : rules) {
    const auto reason = reasons.find(rule);
    absl::StrAppend(&text, "\n- ", count, " dropped by ", rule,
                    reason == reasons.end() ? "" : absl::StrCat(", for instance: ", reason->second));
  }
  return text;
}

std::string ExplainNone(const v1::PlanResult& result, const Reasons& reasons) {
  const int64_t legal = result.bounded_out() + result.captured() + result.failed() + result.not_reached();
  if (legal == 0) return ExplainIllegal(result, reasons);
  const bool has_closest = result.rejected_size() > 0 && result.rejected(0).rule() == "out_of_memory";
  const bool none_simulated = result.not_reached() > 0 && result.captured() == 0;
  if (none_simulated || !has_closest) return "Nothing was simulated to its end.";
  return absl::StrCat(
      result.not_reached() > 0 ? "Nothing that was simulated fits. The closest is " : "Nothing fits. The closest is ",
      Summarize(result.rejected(0).recipe()), ": ", result.rejected(0).reason(),
      ". More devices, a smaller batch or a shorter sequence would help.");
}

std::string ExplainOthers(const std::vector<v1::Estimate>& ranked, const v1::PlanResult& result, const NotReached& not_reached) {
  bool told = false;
  std::string choices;
  for (const Choice& choice : kChoices) choices += ExplainChoice(choice, ranked, result, not_reached, &told);
  std::string text = ExplainHeadroom(ranked);
  if (ranked.size() > 1 && !told) absl::StrAppend(&text, "\n- The next one: ", Slower(ranked[0], ranked[1]), ".");
  text += choices;
  if (const int64_t ties = NearTies(ranked); ties > 1) {
    absl::StrAppend(&text, "\n- ", ties, " recipes lie within ", absl::StrFormat("%.0f %%", 100 * kNearTie),
                    " of the fastest, which is less than these predictions are sure of.");
  }
  return text;
}

// What it means that a part of the ranking was not simulated.
std::string ExplainEstimated(const v1::PlanResult& result) {
  const auto count = std::count_if(result.ranked().begin(), result.ranked().end(), [](const auto& r) { return r.estimated(); });
  if (count == 0) return "";
  return absl::StrCat(" ", count, " of them ", count == 1 ? "is" : "are",
                      " ranked by the closed-form estimate, marked as estimated: with a lower bound of the memory, and they may "
                      "not fit.");
}

}  // namespace

std::string Summarize(const v1::Recipe& recipe) {
  const auto& p = recipe.parallelism();
  std::vector<std::string> parts;
  auto degree = [&](const char* name, int64_t value) {
    if (value != 1) parts.push_back(absl::StrCat(name, " ", value));
  };
  degree("replicate", p.data_parallel_replicate_degree());
  degree("shard", p.data_parallel_shard_degree());
  degree("tp", p.tensor_parallel_degree());
  if (p.pipeline_parallel_degree() > 1) {
    parts.push_back(absl::StrCat(p.pipeline_parallel_schedule() == v1::GPIPE ? "GPipe" : "1F1B", " over ",
                                 p.pipeline_parallel_degree(), " stages with microbatches of ",
                                 p.pipeline_parallel_microbatch_size()));
  }
  const int64_t per_pass =
      recipe.training().local_batch_size() * p.data_parallel_replicate_degree() * p.data_parallel_shard_degree();
  const int64_t passes = per_pass > 0 ? recipe.training().global_batch_size() / per_pass : 1;
  parts.push_back(absl::StrCat("local batch ", recipe.training().local_batch_size(),
                               passes > 1 ? absl::StrCat(" accumulated ", passes, " times") : ""));
  parts.push_back(recipe.activation_checkpoint().mode() == v1::AC_FULL ? "full checkpointing" : "no checkpointing");
  parts.push_back(recipe.training().mixed_precision_param() == v1::BFLOAT16 ? "bfloat16" : "float32");
  return absl::StrJoin(parts, ", ");
}

std::string Explain(const std::vector<v1::Estimate>& ranked, const v1::PlanResult& result, const NotReached& not_reached,
                    const Reasons& reasons) {
  std::string text = ranked.empty() ? ExplainNone(result, reasons) : ExplainWinner(ranked[0]);
  if (!ranked.empty()) text += ExplainOthers(ranked, result, not_reached);
  if (result.not_reached() > 0) {
    const bool comparable = !ranked.empty() && !not_reached.entries.empty();
    absl::StrAppend(&text, ranked.empty() ? " " : "\n- ", "The budget ended before ", result.not_reached(),
                    " further recipes that may fit were simulated",
                    comparable ? ", of which the best is " + ByEstimate(not_reached.entries[0].relative_time) : "",
                    "; a larger --budget-seconds reaches them.", ExplainEstimated(result));
  }
  return text;
}

}  // namespace legoai::planner
