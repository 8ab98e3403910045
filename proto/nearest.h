// The known word nearest to a mistyped one. Thread-safety: pure functions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace legoai {

// Insertions, deletions, replacements and swaps of neighbours that lead from one text to the other (optimal string alignment).
int EditDistance(std::string_view from, std::string_view to);

// The candidate with the smallest distance, the first of equals; empty without candidates. Of a very long word its beginning
// counts.
std::string Nearest(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace legoai
