// Which ranks check their connection with each other, and when: agent and trainers must agree. Thread-safety: pure functions.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace legoai::launch {

// The smaller rank first.
using RankPair = std::pair<int64_t, int64_t>;

// Rounds of pairs that share no rank: every two of the ranks meet once, in as few rounds as there can be. `neighbours`: instead
// each rank meets the one beside it, so that all have met somebody. None for fewer than two ranks.
std::vector<std::vector<RankPair>> CheckRounds(int64_t ranks, bool neighbours);

// Which ranks to blame for pairs that failed: those without which as many as possible of the failures would not have been, the
// one with the most first; of a pair that nothing else tells apart both.
std::vector<int64_t> BlameRanks(const std::vector<RankPair>& failed);

}  // namespace legoai::launch
