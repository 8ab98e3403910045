// Ranks for people. Torch-free. Thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace legoai::comm {

// "0-3,5": ascending ranks, ranges of three and more shortened.
std::string RanksText(const std::vector<int64_t>& ranks);

}  // namespace legoai::comm
