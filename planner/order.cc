#include "planner/order.h"

#include <algorithm>
#include <numeric>
#include <tuple>

namespace legoai::planner {

std::vector<size_t> RankOrder(const std::vector<Standing>& standings) {
  std::vector<size_t> order(standings.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return std::tuple(standings[a].step_seconds, a) < std::tuple(standings[b].step_seconds, b);
  });
  for (auto begin = order.begin(); begin != order.end();) {
    const double fastest = standings[*begin].step_seconds;
    const auto end = std::find_if(begin, order.end(), [&](size_t i) { return !IsNearTie(standings[i].step_seconds, fastest); });
    std::sort(begin, end, [&](size_t a, size_t b) {
      return std::tuple(-standings[a].headroom_bytes, standings[a].step_seconds, a) <
             std::tuple(-standings[b].headroom_bytes, standings[b].step_seconds, b);
    });
    begin = std::max(end, begin + 1);
  }
  return order;
}

}  // namespace legoai::planner
