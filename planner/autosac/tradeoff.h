// Memory against recomputation of one block: which operators go together, what discarding more and more of them costs, and a
// convex upper bound of that for a linear program.
//
// Thread-safety: pure functions. Units: bytes, seconds.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "planner/autosac/facts.h"

namespace legoai::planner {

struct GroupingOptions {
  // Results of random operators are always kept. Ours draw by position (worker/model/ops.h), so recomputation draws the same.
  bool store_random = false;
};

// Operators that are kept or recomputed together: one that makes a storage, and those that write it in place.
struct Group {
  std::vector<int> operators;  // the leader first
  int64_t bytes = 0;
  double seconds = 0;
  bool always_stored = false, always_recomputed = false;

  // Memory saved per second of recomputation, infinite where it takes no time.
  double MemoryPerSecond() const;
};

// Of the operators that recomputation runs. Views are always recomputed, and what a policy cannot keep.
std::vector<Group> GroupsOf(const BlockFacts& facts, const GroupingOptions& options = {});

struct TradeoffPoint {
  int group = -1;  // that is discarded here; -1: none
  int64_t discarded_bytes = 0;
  double seconds = 0;  // of recomputation
};

// What is always recomputed first, then the most memory per second. Sums include the point's own group.
std::vector<TradeoffPoint> TradeoffOf(const std::vector<Group>& groups);

// A line over the discarded share of a block's bytes: share of the block's time = slope * share + intercept.
struct Segment {
  double slope = 0, intercept = 0;
};

// The lines whose maximum is the convex function with the least overshoot over the curve, moved up to be safe: to discard more
// than a point has takes the time of the next one. `bytes`, `seconds`: of the whole block. Errors: those of Milp.
absl::StatusOr<std::vector<Segment>> UpperBound(const std::vector<TradeoffPoint>& curve, int64_t bytes, double seconds);

// The bound at a share from 0 to 1.
double At(const std::vector<Segment>& bound, double share);

}  // namespace legoai::planner
