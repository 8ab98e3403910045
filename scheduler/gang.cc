#include "scheduler/gang.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

namespace legoai::scheduler {
namespace {

const std::vector<std::string>& PlaceOf(const Fleet& fleet, int worker) { return fleet.workers()[worker].view->place; }

// The name of its place of this level, within those further out. A worker that names none is where all such are.
std::vector<std::string> PlaceUpTo(const Fleet& fleet, int worker, size_t level) {
  std::vector<std::string> place = PlaceOf(fleet, worker);
  place.resize(level + 1);
  return place;
}

size_t Levels(const Fleet& fleet, const std::vector<int>& workers) {
  size_t levels = 0;
  for (const int worker : workers) levels = std::max(levels, PlaceOf(fleet, worker).size());
  return levels;
}

using Places = std::map<std::vector<std::string>, std::vector<int>>;

Places AtLevel(const Fleet& fleet, const std::vector<int>& workers, size_t level) {
  Places places;
  for (const int worker : workers) places[PlaceUpTo(fleet, worker, level)].push_back(worker);
  return places;
}

std::vector<int> Pick(const Fleet& fleet, std::vector<int> candidates, size_t count, size_t level, size_t levels);

// From the place that holds all of them, where their inner places are fewest, then the smallest such; nothing: none does.
std::optional<std::vector<int>> PickInOne(const Fleet& fleet, const Places& places, size_t count, size_t level, size_t levels) {
  std::optional<std::vector<int>> best;
  std::pair<std::vector<size_t>, size_t> best_cost;
  for (const auto& [name, workers] : places) {
    if (workers.size() < count) continue;
    std::vector<int> picked = Pick(fleet, workers, count, level + 1, levels);
    const std::pair cost(Spread(fleet, picked), workers.size());
    if (best && best_cost <= cost) continue;
    best = std::move(picked);
    best_cost = cost;
  }
  return best;
}

std::vector<int> Pick(const Fleet& fleet, std::vector<int> candidates, size_t count, size_t level, size_t levels) {
  if (level == levels) {
    std::stable_sort(candidates.begin(), candidates.end(),
                     [&](int a, int b) { return fleet.workers()[a].free < fleet.workers()[b].free; });
    candidates.resize(count);
    return candidates;
  }
  Places places = AtLevel(fleet, candidates, level);
  std::vector<int> picked;
  while (picked.size() < count) {
    if (auto rest = PickInOne(fleet, places, count - picked.size(), level, levels)) {
      picked.insert(picked.end(), rest->begin(), rest->end());
      continue;
    }
    const auto largest = std::max_element(
        places.begin(), places.end(), [](const auto& a, const auto& b) { return a.second.size() < b.second.size(); });
    picked.insert(picked.end(), largest->second.begin(), largest->second.end());
    places.erase(largest);
  }
  return picked;
}

}  // namespace

std::vector<size_t> Spread(const Fleet& fleet, const std::vector<int>& workers) {
  std::vector<size_t> spread;
  for (size_t level = 0; level < Levels(fleet, workers); ++level) spread.push_back(AtLevel(fleet, workers, level).size());
  return spread;
}

std::vector<int> Nearest(const Fleet& fleet, const std::vector<int>& candidates, size_t count) {
  std::vector<int> picked = Pick(fleet, candidates, count, 0, Levels(fleet, candidates));
  std::sort(picked.begin(), picked.end(),
            [&](int a, int b) { return std::tie(PlaceOf(fleet, a), a) < std::tie(PlaceOf(fleet, b), b); });
  return picked;
}

}  // namespace legoai::scheduler
