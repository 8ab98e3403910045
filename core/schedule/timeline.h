// The timeline of a pipeline schedule in which a forward and each of the two gradients of a backward take 1, and messages take no
// time: when each rank does what, how long it waits, and how many forwards' activations it holds. Pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/schedule/schedule.h"

namespace legoai::parallel {

struct Timeline {
  struct Span {
    Action action;
    int64_t begin = 0, end = 0;
  };
  std::vector<std::vector<Span>> ranks;  // by rank, in order of time
  int64_t length = 0;                    // until the last one is done
  // The share of the ranks' time that they wait. For GPipe and 1F1B (p - 1) / (m + p - 1) on p ranks with m microbatches (Huang
  // et al. 2019, section 2.3); with v chunks a rank (p - 1) / (v m + p - 1) (Narayanan et al. 2021, section 2.2).
  double bubble_share = 0;
  std::vector<int64_t> in_flight;  // by rank: the most forwards whose weight gradients are not done
};

// `schedule` is sound (CheckSchedule).
Timeline TimelineOf(const Schedule& schedule);

// A line per rank, with cells as wide as the longest action's name: "F0 F1 F2 B0    F3 B1   ", dots where it waits. A backward is
// twice as wide as a forward.
std::string TimelineText(const Timeline& timeline);

}  // namespace legoai::parallel
