#include "planner/ranking.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <tuple>

#include "core/hardware/catalog.h"
#include "core/model/model_facts.h"
#include "core/recipe/recipe.h"
#include "planner/plan_facts.h"

namespace legoai::planner {
namespace {

// Without a text there is nothing that its default tokenizer would be meant for.
std::string FileText(v1::Recipe recipe) {
  const bool meant = recipe.training().has_dataset_path() || recipe.model().tokenizer_path() != "byte";
  if (!meant) recipe.mutable_model()->clear_tokenizer_path();
  return parallel::RecipeToToml(recipe);
}

// What is ranked by, and what decides between near ties; less is better.
struct Key {
  double first = 0, second = 0;
};

Key KeyOf(const Standing& standing, v1::Objective objective) {
  const auto seconds = standing.step_seconds;
  if (objective == v1::MEMORY) return {static_cast<double>(standing.peak_bytes), seconds};
  return {seconds, -static_cast<double>(standing.headroom_bytes)};
}

}  // namespace

v1::RankedRecipe RankSimulated(const v1::Estimate& estimate) {
  v1::RankedRecipe ranked = RankSimulatedSoFar(estimate);
  ranked.set_recipe_toml(FileText(estimate.recipe()));
  return ranked;
}

v1::RankedRecipe RankSimulatedSoFar(const v1::Estimate& estimate) {
  const auto& stage = FullestStage(estimate);
  v1::RankedRecipe ranked;
  *ranked.mutable_recipe() = estimate.recipe();
  ranked.set_step_time_seconds(estimate.step_time_seconds());
  ranked.set_tokens_per_second_per_gpu(estimate.tokens_per_second_per_gpu());
  ranked.set_mfu(estimate.mfu());
  ranked.set_peak_memory_bytes(stage.peak_allocated_bytes());
  ranked.set_headroom_bytes(HeadroomBytes(stage));
  *ranked.mutable_memory() = stage.categories();
  *ranked.mutable_breakdown() = estimate.breakdown();
  *ranked.mutable_running_cost() = estimate.running_cost();
  return ranked;
}

v1::RankedRecipe RankEstimated(const v1::PlanRequest& request, const Survivor& survivor) {
  const sim::RooflineEstimate& roofline = survivor.roofline;
  const v1::Cluster& cluster = request.cluster();
  v1::RankedRecipe ranked;
  ranked.set_estimated(true);
  *ranked.mutable_recipe() = survivor.recipe;
  ranked.set_recipe_toml(FileText(survivor.recipe));
  ranked.set_step_time_seconds(roofline.step_seconds);
  const double tokens = static_cast<double>(request.global_batch()) * static_cast<double>(request.seq_len());
  const double world = static_cast<double>(cluster.devices_per_node() * cluster.nodes());
  const double peak =
      sim::PeakFlops(cluster.device(), survivor.recipe.training().mixed_precision_param()) / sim::RanksPerCore(cluster);
  if (roofline.step_seconds > 0) {
    ranked.set_tokens_per_second_per_gpu(tokens / roofline.step_seconds / world);
    const double flops = model::FlopsPerToken(request.model(), request.seq_len()) * ranked.tokens_per_second_per_gpu();
    ranked.set_mfu(model::ModelFlopsUtilization(flops, peak).value_or(0));
  }
  *ranked.mutable_running_cost() = sim::RunningCostOf(cluster, tokens, roofline.step_seconds);
  ranked.set_peak_memory_bytes(survivor.bound_bytes);
  ranked.set_headroom_bytes(UsableBytes(cluster) - survivor.bound_bytes);
  v1::Breakdown* const parts = ranked.mutable_breakdown();
  parts->set_compute_seconds(roofline.compute_seconds);
  parts->set_exposed_communication_seconds(roofline.communication_seconds);
  parts->set_bubble_seconds(roofline.bubble_seconds);
  parts->set_optimizer_seconds(roofline.optimizer_seconds);
  return ranked;
}

std::vector<size_t> RankOrder(const std::vector<Standing>& standings, v1::Objective objective) {
  std::vector<Key> keys;
  for (const Standing& standing : standings) keys.push_back(KeyOf(standing, objective));
  std::vector<size_t> order(standings.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(),
            [&](size_t a, size_t b) { return std::tuple(keys[a].first, a) < std::tuple(keys[b].first, b); });
  for (auto begin = order.begin(); begin != order.end();) {
    const double best = keys[*begin].first;
    const auto end = std::find_if(begin, order.end(), [&](size_t i) { return !IsNearTie(keys[i].first, best); });
    std::sort(begin, end, [&](size_t a, size_t b) {
      return std::tuple(keys[a].second, keys[a].first, a) < std::tuple(keys[b].second, keys[b].first, b);
    });
    begin = std::max(end, begin + 1);
  }
  return order;
}

}  // namespace legoai::planner
