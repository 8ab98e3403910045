#include "worker/comm/flight_waits.h"

#include <algorithm>
#include <utility>

namespace legoai::comm {

int64_t FlightWaits::Add(const std::vector<int64_t>& waiters, const std::vector<int64_t>& blockers) {
  waits_.push_back({waiters, blockers});
  return static_cast<int64_t>(waits_.size()) - 1;
}

std::set<int64_t> FlightWaits::Waiting() const {
  std::set<int64_t> waiting;
  for (const Wait& wait : waits_) waiting.insert(wait.waiters.begin(), wait.waiters.end());
  for (int64_t rank : blamed_) waiting.erase(rank);
  return waiting;
}

// Everybody from whom a chain of waits leads to one of `ends`, those included.
std::set<int64_t> FlightWaits::LeadingTo(const std::set<int64_t>& ends) const {
  std::map<int64_t, std::vector<const Wait*>> for_rank;  // the waits that it blocks
  for (const Wait& wait : waits_) {
    for (int64_t rank : wait.blockers) for_rank[rank].push_back(&wait);
  }
  std::set<int64_t> found = ends;
  std::set<const Wait*> seen;
  std::vector<int64_t> open(ends.begin(), ends.end());
  while (!open.empty()) {
    const int64_t rank = open.back();
    open.pop_back();
    for (const Wait* wait : for_rank[rank]) {
      if (!seen.insert(wait).second) continue;
      for (int64_t waiter : wait->waiters) {
        if (found.insert(waiter).second) open.push_back(waiter);
      }
    }
  }
  return found;
}

// Of ranks that all wait for one another: those nobody of them waits for only follow.
std::set<int64_t> FlightWaits::Circles(std::set<int64_t> ranks) const {
  for (bool changed = true; changed;) {
    std::set<int64_t> waited_for;
    for (const Wait& wait : waits_) {
      const bool inside = std::any_of(wait.waiters.begin(), wait.waiters.end(), [&](int64_t r) { return ranks.count(r) > 0; });
      if (!inside) continue;
      for (int64_t rank : wait.blockers) {
        if (ranks.count(rank) > 0) waited_for.insert(rank);
      }
    }
    changed = waited_for.size() < ranks.size();
    ranks = std::move(waited_for);
  }
  return ranks;
}

std::set<int64_t> FlightWaits::Culprits() const {
  const std::set<int64_t> waiting = Waiting();
  std::set<int64_t> culprits;
  for (const Wait& wait : waits_) {
    for (int64_t rank : wait.blockers) {
      if (waiting.count(rank) == 0) culprits.insert(rank);
    }
  }
  const std::set<int64_t> explained = LeadingTo(culprits);
  std::set<int64_t> rest;
  std::set_difference(waiting.begin(), waiting.end(), explained.begin(), explained.end(), std::inserter(rest, rest.end()));
  const std::set<int64_t> circles = Circles(std::move(rest));
  culprits.insert(circles.begin(), circles.end());
  return culprits;
}

}  // namespace legoai::comm
