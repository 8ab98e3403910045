// The wait-for graph of ranks and the ranks at its root; and what is stalled in a live run.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "proto/legoai/v1/flight_record.pb.h"

namespace legoai::comm {

// A rank that waits in one operation is kept from another only if it queued the first before the second, and if those who wait
// for it in the second did not have to pass the first too. Not thread-safe.

class FlightWaits {
 public:
  struct Place {
    int64_t rank = 0;
    int64_t record = 0;  // number of its record of the operation; INT64_MAX: it has none, it has not queued it
  };

  // `waiters` are inside an operation that completes only when all of `blockers` do their part; no blockers: the reason is
  // unknown. Returns the number of the wait: 0, 1, ...
  int64_t Add(const std::vector<Place>& waiters, const std::vector<Place>& blockers);

  // Marks a rank that is stuck by itself: nothing else holds it up.
  void Blame(int64_t rank) { blamed_.insert(rank); }

  struct Causes {
    std::set<int64_t> culprits;              // of all waits: blockers that nothing holds up; all ranks of a cycle
    std::vector<std::set<int64_t>> of_wait;  // by wait
    std::set<int64_t> circle;                // waits that form a cycle
    std::set<int64_t> needed;                // waits without known blockers that others wait behind
  };
  Causes Find() const;

  // All waiting ranks.
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

// What is stalled in a live run, from two snapshots of its ranks' flight records. A pure function.

// Says who waits for whom, and since when, if ranks were inside the same collective or message in both snapshots, for at least a
// second, and nobody else entered it in between: "rank 0 waits for rank 1 since 12 s: ...". Nobody is blamed ("undecided"): the
// rank waited for may be computing. Otherwise, and where operations do not match, the result is that of AnalyzeFlight for
// `later`. One dump per rank in each snapshot, read from rings; `now_ns`: when the later ones were read, since the epoch.
v1::FlightAnalysis AnalyzeStandstill(const std::vector<v1::FlightDump>& earlier, const std::vector<v1::FlightDump>& later,
                                     int64_t world_size, int64_t now_ns);

}  // namespace legoai::comm
