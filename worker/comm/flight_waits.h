// Which ranks wait for which, and whom it all comes down to. Torch-free. Not thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <vector>

namespace legoai::comm {

class FlightWaits {
 public:
  // `waiters` are inside an operation that goes on only when all of `blockers` do their part. The number of the wait: 0, 1, ...
  int64_t Add(const std::vector<int64_t>& waiters, const std::vector<int64_t>& blockers);

  // What this rank is in will never come to an end by itself, whoever it waits for: it is to blame wherever it is waited for.
  void Blame(int64_t rank) { blamed_.insert(rank); }

  bool empty() const { return waits_.empty(); }

  // The ranks at the ends of all chains: waited for and waiting for nobody. Where ranks wait in a circle, with no such end that
  // any of them reaches, all of the circle.
  std::set<int64_t> Culprits() const;

  // All that wait, directly or through others.
  std::set<int64_t> Waiting() const;

 private:
  struct Wait {
    std::vector<int64_t> waiters, blockers;
  };
  std::set<int64_t> LeadingTo(const std::set<int64_t>& ends) const;
  std::set<int64_t> Circles(std::set<int64_t> ranks) const;

  std::vector<Wait> waits_;
  std::set<int64_t> blamed_;
};

}  // namespace legoai::comm
