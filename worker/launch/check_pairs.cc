#include "worker/launch/check_pairs.h"

#include <algorithm>
#include <map>
#include <set>

namespace legoai::launch {
namespace {

std::vector<std::vector<RankPair>> Neighbours(int64_t ranks) {
  std::vector<std::vector<RankPair>> rounds(1);
  for (int64_t rank = 0; rank + 1 < ranks; rank += 2) rounds[0].push_back({rank, rank + 1});
  if (ranks % 2 == 1) rounds.push_back({{0, ranks - 1}});  // the last is left over
  return rounds;
}

}  // namespace

// The circle method: the last stands, the others go round it.
std::vector<std::vector<RankPair>> CheckRounds(int64_t ranks, bool neighbours) {
  if (ranks < 2) return {};
  if (neighbours) return Neighbours(ranks);
  const int64_t even = ranks + ranks % 2, circle = even - 1;
  std::vector<std::vector<RankPair>> rounds;
  for (int64_t round = 0; round < circle; ++round) {
    std::vector<RankPair>& pairs = rounds.emplace_back();
    for (int64_t i = 0; i < even / 2; ++i) {
      const int64_t a = i == 0 ? circle : (round + i) % circle, b = (round + circle - i) % circle;
      if (std::max(a, b) < ranks) pairs.push_back({std::min(a, b), std::max(a, b)});  // else who meets nobody
    }
  }
  return rounds;
}

std::vector<int64_t> BlameRanks(const std::vector<RankPair>& failed) {
  std::vector<RankPair> left = failed;
  std::set<int64_t> blamed;
  while (!left.empty()) {
    std::map<int64_t, size_t> failures;
    for (const auto& [a, b] : left) ++failures[a], ++failures[b];
    const auto worst = std::max_element(failures.begin(), failures.end(),
                                        [](const auto& a, const auto& b) { return a.second < b.second; });
    if (worst->second == 1) {
      for (const auto& [a, b] : left) blamed.insert({a, b});
      break;
    }
    const int64_t rank = worst->first;
    blamed.insert(rank);
    std::erase_if(left, [rank](const RankPair& pair) { return pair.first == rank || pair.second == rank; });
  }
  return {blamed.begin(), blamed.end()};
}

}  // namespace legoai::launch
