// Which workers a job over several of them gets: near each other, so that their network is fast, and from places that others
// need least. Thread-safety: pure functions.
#pragma once

#include <cstddef>
#include <vector>

#include "scheduler/fleet.h"

namespace legoai::scheduler {

// Of how many places of each level (WorkerView::place), outermost first, these workers are. Smaller is nearer.
std::vector<size_t> Spread(const Fleet& fleet, const std::vector<int>& workers);

// `count` of the candidates, of which there are at least as many; neighbours follow each other. They are of as few places of the
// outermost level as possible; if that is one, of as few of the next level as possible, and so on. Places that the gang fills
// come first, then the fullest workers, so that what is left is in one piece.
std::vector<int> Nearest(const Fleet& fleet, const std::vector<int>& candidates, size_t count);

}  // namespace legoai::scheduler
