// Byte-pair encoding: a piece of text starts as symbols, its bytes or characters, and two neighbours are joined into one again
// and again until none can be. Thread-safety: const access from several threads is safe.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

namespace legoai::data {

// Two neighbours and what they become, all as ids.
struct Merge {
  int32_t left, right, made;
  bool operator==(const Merge&) const = default;
};

// Every way to make a token of two others, in the order of ids, then of the halves' ids. `tokens[id]` are the bytes of a token.
std::vector<Merge> AllMerges(const std::vector<std::string>& tokens);

class BytePairEncoding {
 public:
  // As tokenizers does it: of all neighbours the first merge of the list is done, the leftmost among equals.
  explicit BytePairEncoding(const std::vector<Merge>& merges);
  // As tiktoken does it: whatever makes the token with the lowest id is done, the leftmost among equals.
  static BytePairEncoding OfRanks(const std::vector<std::string>& tokens);

  // The symbols of one piece become its tokens. O(n log n) in their number.
  void Join(std::vector<int32_t>* symbols) const;

 private:
  struct Joined {
    int32_t rank, made;
  };
  BytePairEncoding() = default;
  const Joined* Find(int32_t left, int32_t right) const;

  std::unordered_map<uint64_t, Joined> joined_;  // by left << 32 | right
};

}  // namespace legoai::data
