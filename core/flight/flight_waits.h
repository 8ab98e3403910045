// Which ranks wait for which, and whom it all comes down to. Not thread-safe.
//
// A rank that waits in one operation is held up from another: but only if it queued the first before the second, and if those who
// wait for it in the second did not have to pass the first too, and could.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace legoai::comm {

class FlightWaits {
 public:
  struct Place {
    int64_t rank = 0;
    int64_t record = 0;  // number of its record of the operation; INT64_MAX: it has none, it has not queued it
  };

  // `waiters` are inside an operation that goes on only when all of `blockers` do their part; no blockers: nobody knows why it
  // does not go on. The number of the wait: 0, 1, ...
  int64_t Add(const std::vector<Place>& waiters, const std::vector<Place>& blockers);

  // What this rank is in will never come to an end by itself: nothing holds it up.
  void Blame(int64_t rank) { blamed_.insert(rank); }

  struct Causes {
    std::set<int64_t> culprits;  // of all waits: blockers that nothing holds up; where ranks wait in a circle, all of it
    std::vector<std::set<int64_t>> of_wait;  // by wait
    std::set<int64_t> circle;                // waits that go round in a circle
    std::set<int64_t> needed;                // waits without known blockers that others wait behind
  };
  Causes Find() const;

  // All ranks that wait.
  std::set<int64_t> Waiting() const;

 private:
  struct Wait {
    std::map<int64_t, int64_t> waiters;  // record by rank
    std::vector<Place> blockers;
  };
  bool Passed(const Wait& wait, const Wait& earlier) const;
  std::vector<int64_t> HeldUpBy(const Wait& wait, const Place& blocker) const;
  static std::set<int64_t> Circle(std::set<int64_t> waits, const std::vector<std::set<int64_t>>& behind);

  std::vector<Wait> waits_;
  std::map<int64_t, std::vector<int64_t>> waits_of_;  // by rank: those it is inside of
  std::set<int64_t> blamed_;
};

// Ranks for people. Thread-safe.

// "0-3,5": ascending ranks, ranges of three and more shortened.
std::string RanksText(const std::vector<int64_t>& ranks);

}  // namespace legoai::comm
