#include "core/hardware/running_cost.h"

namespace legoai::sim {

v1::RunningCost RunningCostOf(const v1::Cluster& cluster, double tokens_per_step, double step_seconds) {
  v1::RunningCost cost;
  if (step_seconds <= 0 || tokens_per_step <= 0) return cost;
  const double tokens_per_second = tokens_per_step / step_seconds;
  const double gpus = static_cast<double>(cluster.devices_per_node() * cluster.nodes());
  cost.set_tokens_per_day(tokens_per_second * 24 * 3600);
  cost.set_gpu_hours_per_billion_tokens(1e9 / tokens_per_second / 3600 * gpus);
  cost.set_price_per_billion_tokens(cost.gpu_hours_per_billion_tokens() * cluster.price_per_gpu_hour());
  return cost;
}

}  // namespace legoai::sim
