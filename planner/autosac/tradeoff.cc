#include "planner/autosac/tradeoff.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "planner/autosac/milp.h"
#include "proto/status.h"

namespace legoai::planner {
namespace {

bool IsEarlier(const Group& a, const Group& b) {
  if (a.always_recomputed != b.always_recomputed) return a.always_recomputed;
  return !a.always_recomputed && a.MemoryPerSecond() > b.MemoryPerSecond();
}

// Points of the curve by share of memory and of time, moved up: the first cost and the last amount are dropped. Of equal amounts
// the most costly.
std::vector<std::pair<double, double>> Moved(const std::vector<TradeoffPoint>& curve, double bytes, double seconds) {
  std::vector<std::pair<double, double>> points;
  for (size_t i = 0; i + 1 < curve.size(); ++i) {
    const double share = static_cast<double>(curve[i].discarded_bytes) / bytes, time = curve[i + 1].seconds / seconds;
    if (!points.empty() && share - points.back().first < 1e-9) {
      points.back().second = std::max(points.back().second, time);
    } else {
      points.emplace_back(share, time);
    }
  }
  return points;
}

Segment LineThrough(std::pair<double, double> a, std::pair<double, double> b) {
  const double slope = (b.second - a.second) / (b.first - a.first);
  return {slope, a.second - slope * a.first};
}

}  // namespace

double Group::MemoryPerSecond() const {
  if (seconds > 0) return static_cast<double>(bytes) / seconds;
  return bytes > 0 ? std::numeric_limits<double>::infinity() : 0;
}

std::vector<Group> GroupsOf(const BlockFacts& facts, const GroupingOptions& options) {
  std::vector<Group> groups;
  std::map<int, size_t> group_of;  // by leader
  for (int i = 0; i < static_cast<int>(facts.operators.size()); ++i) {
    const OperatorFacts& op = facts.operators[i];
    if (!op.recomputed) continue;
    const int leader = op.leader < 0 ? i : op.leader;
    const auto [found, fresh] = group_of.try_emplace(leader, groups.size());
    if (fresh) groups.emplace_back();
    Group& group = groups[found->second];
    group.operators.push_back(i);
    group.bytes += op.bytes;
    group.seconds += op.seconds;
    group.always_stored = group.always_stored || (options.store_random && op.random);
    group.always_recomputed = group.always_recomputed || op.view_like || !op.keepable;
  }
  for (Group& group : groups) group.always_recomputed = group.always_recomputed && !group.always_stored;
  return groups;
}

std::vector<TradeoffPoint> TradeoffOf(const std::vector<Group>& groups) {
  std::vector<int> order;
  for (int i = 0; i < static_cast<int>(groups.size()); ++i) {
    if (!groups[i].always_stored) order.push_back(i);
  }
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return IsEarlier(groups[a], groups[b]); });
  std::vector<TradeoffPoint> curve;
  int64_t bytes = 0;
  double seconds = 0;
  for (const int i : order) {
    bytes += groups[i].bytes, seconds += groups[i].seconds;
    curve.push_back({i, bytes, seconds});
  }
  return curve;
}

absl::StatusOr<std::vector<Segment>> UpperBound(const std::vector<TradeoffPoint>& curve, int64_t bytes, double seconds) {
  if (bytes <= 0 || seconds <= 0 || curve.empty()) return std::vector<Segment>{{0, 0}};
  auto points = Moved(curve, static_cast<double>(bytes), seconds);
  if (points.size() < 2) return std::vector<Segment>{{0, curve.back().seconds / seconds}};
  // Heights above the points; what is to be least is the area between.
  Milp program;
  for (const auto& [share, time] : points) program.AddVariable(time, Milp::kInfinite, 1);
  for (int i = 1; i + 1 < static_cast<int>(points.size()); ++i) {
    const double before = 1 / (points[i].first - points[i - 1].first), after = 1 / (points[i + 1].first - points[i].first);
    program.AddAtLeast({{i - 1, before}, {i, -before - after}, {i + 1, after}}, 0);  // slopes do not fall
  }
  ASSIGN_OR_RETURN(const auto heights, program.Minimize({}));
  for (size_t i = 0; i < points.size(); ++i) points[i].second = heights[i];
  std::vector<Segment> bound;
  for (size_t i = 0; i + 1 < points.size(); ++i) {
    const Segment line = LineThrough(points[i], points[i + 1]);
    const bool same = !bound.empty() && std::abs(line.slope - bound.back().slope) < 1e-9 * std::max(1.0, std::abs(line.slope));
    if (!same) bound.push_back(line);
  }
  return bound;
}

double At(const std::vector<Segment>& bound, double share) {
  double most = 0;
  for (const Segment& line : bound) most = std::max(most, line.slope * share + line.intercept);
  return most;
}

}  // namespace legoai::planner
