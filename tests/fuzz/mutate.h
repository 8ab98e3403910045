// Damages bytes as disks, transfers and people do: flipped bits, cut ends, pieces lost, doubled and swapped, parts of another
// file, and what breaks formats from inside: words of the format, numbers at the edges of their types, lengths that lie. A mutant
// depends on its seed, the corpus and the tokens alone. Thread-safety: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace legoai::fuzz {

// What stands between the bars of `text`.
std::vector<std::string> Words(const std::string& text);

// No mutant is larger.
inline constexpr size_t kMostBytes = 1 << 16;

// `corpus`: valid files and others, at least one. `tokens`: words of the format that are put in, or put for another.
std::string Mutate(uint64_t seed, const std::vector<std::string>& corpus, const std::vector<std::string>& tokens);

}  // namespace legoai::fuzz
