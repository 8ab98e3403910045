#include "planner/order.h"

#include <algorithm>
#include <numeric>
#include <tuple>

namespace legoai::planner {
namespace {

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
