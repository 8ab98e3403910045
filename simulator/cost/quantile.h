// Torch-free. Pure.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace legoai::sim {

// Of at least one number, sorted; between two neighbours in proportion. `share`: 0 to 1.
inline double Quantile(const std::vector<double>& sorted, double share) {
  const double place = share * static_cast<double>(sorted.size() - 1);
  const size_t below = static_cast<size_t>(place), above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (place - static_cast<double>(below)) * (sorted[above] - sorted[below]);
}

}  // namespace legoai::sim
