#include "planner/explain_none.h"

#include <algorithm>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "planner/explain.h"
#include "planner/headroom.h"
#include "proto/quantity_text.h"

namespace legoai::planner {
namespace {

// The rules that leave nothing, those that drop most first.
std::string ExplainIllegal(const PlanFacts& facts, const v1::PlanResult& result) {
  std::vector<std::pair<std::string, int64_t>> rules(result.pruned().begin(), result.pruned().end());
  std::sort(rules.begin(), rules.end(),
            [](const auto& a, const auto& b) { return std::tie(b.second, a.first) < std::tie(a.second, b.first); });
  std::string text = absl::StrCat("No recipe of the space is legal for this model, batch and cluster. Of ", result.space(), ":");
  for (const auto& [rule, count] : rules) {
    const auto reason = facts.space->reasons.find(rule);
    absl::StrAppend(&text, "\n- ", count, " dropped by ", rule,
                    reason == facts.space->reasons.end() ? "" : absl::StrCat(", for instance: ", reason->second));
  }
  return text;
}

std::string DevicesText(const v1::Cluster& cluster, int64_t nodes) {
  const int64_t devices = nodes * cluster.devices_per_node();
  if (cluster.devices_per_node() == 1) return absl::StrCat(devices, " devices");
  return absl::StrCat(devices, " devices (", nodes, " nodes of ", cluster.devices_per_node(), ")");
}

// How many devices would do, by the closed forms.
std::string ExplainLarger(const PlanFacts& facts) {
  if (!facts.larger) return "";
  const v1::Cluster& cluster = facts.request->cluster();
  const LargerCluster& larger = *facts.larger;
  if (!larger.fitting) {
    return absl::StrCat(" By the closed-form bound nothing fits on any cluster of up to ", DevicesText(cluster, larger.nodes),
                        " like these either: a smaller batch, a shorter sequence or fewer constraints would help.");
  }
  return absl::StrCat(" At least ", DevicesText(cluster, larger.nodes),
                      " like these are needed, by the closed-form bound: ", Summarize(larger.fitting->recipe), " needs at least ",
                      BytesText(larger.fitting->bound_bytes), " of each there, ", BytesText(UsableBytes(cluster)),
                      " are usable. `lego plan` for that cluster says whether it fits.");
}

}  // namespace

std::string ExplainNone(const PlanFacts& facts, const v1::PlanResult& result) {
  const int64_t legal = result.bounded_out() + result.captured() + result.failed() + result.not_reached();
  if (legal == 0) return ExplainIllegal(facts, result);
  const bool has_closest = result.rejected_size() > 0 && result.rejected(0).rule() == "out_of_memory";
  const bool none_simulated = result.not_reached() > 0 && result.captured() == 0;
  if (none_simulated || !has_closest) return "Nothing was simulated to its end.";
  return absl::StrCat(
      result.not_reached() > 0 ? "Nothing that was simulated fits. The closest is " : "Nothing fits. The closest is ",
      Summarize(result.rejected(0).recipe()), ": ", result.rejected(0).reason(), ".", ExplainLarger(facts));
}

}  // namespace legoai::planner
