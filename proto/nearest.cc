#include "proto/nearest.h"

#include <algorithm>

namespace legoai {
namespace {

constexpr size_t kMostCompared = 256;  // bytes: who sends megabytes as a key meant none of ours

}  // namespace

int EditDistance(std::string_view from, std::string_view to) {
  const int rows = from.size() + 1, columns = to.size() + 1;
  std::vector<int> cost(rows * columns);
  auto at = [&](int i, int j) -> int& { return cost[i * columns + j]; };
  for (int i = 0; i < rows; ++i) {
    for (int j = 0; j < columns; ++j) {
      if (i == 0 || j == 0) {
        at(i, j) = i + j;
        continue;
      }
      at(i, j) = std::min({at(i - 1, j) + 1, at(i, j - 1) + 1, at(i - 1, j - 1) + (from[i - 1] != to[j - 1])});
      const bool swapped = i > 1 && j > 1 && from[i - 1] == to[j - 2] && from[i - 2] == to[j - 1];
      if (swapped) at(i, j) = std::min(at(i, j), at(i - 2, j - 2) + 1);
    }
  }
  return cost.back();
}

std::string Nearest(std::string_view word, const std::vector<std::string>& candidates) {
  word = word.substr(0, kMostCompared);
  const auto nearest = std::min_element(candidates.begin(), candidates.end(), [&](const std::string& a, const std::string& b) {
    return EditDistance(word, a) < EditDistance(word, b);
  });
  return nearest == candidates.end() ? "" : *nearest;
}

}  // namespace legoai
