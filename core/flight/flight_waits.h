// Which ranks wait for which, and whom it all comes down to; and what stands still in a run that goes on.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "proto/legoai/v1/flight_record.pb.h"

namespace legoai::comm {

// A rank that waits in one operation is held up from another: but only if it queued the first before the second, and if those who
// wait for it in the second did not have to pass the first too, and could. Not thread-safe.

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

// What stands still in a run that goes on, told from two looks at the flight records of its ranks. A pure function.

// Says who waits for whom, and since when, where ranks have been inside of the same collective or message in both looks, for a
// second at least, and nobody else came to it in between: "rank 0 waits for rank 1 since 12 s: ...". Nobody is blamed
// ("undecided"): whoever is waited for may be computing. Elsewhere, and where ranks entered different things, it says what
// AnalyzeFlight says of `later`. One dump of each rank in each look, read from rings; `now_ns`: when the later ones were read,
// since the epoch.
v1::FlightAnalysis AnalyzeStandstill(const std::vector<v1::FlightDump>& earlier, const std::vector<v1::FlightDump>& later,
                                     int64_t world_size, int64_t now_ns);

}  // namespace legoai::comm
