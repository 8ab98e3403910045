// Byte-pair encoding by ranks: a piece of text starts as single bytes, and the neighbours whose concatenation has the lowest rank
// are joined, the leftmost first among equals, until no two neighbours are a token. Thread-safety: const access from several
// threads is safe.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace legoai::data {

class BytePairEncoding {
 public:
  // `tokens[rank]` are the bytes of the token; all 256 single bytes are among them, and none twice.
  explicit BytePairEncoding(std::vector<std::string> tokens);
  BytePairEncoding(const BytePairEncoding&) = delete;
  BytePairEncoding& operator=(const BytePairEncoding&) = delete;

  // Appends the tokens of one piece. O(n log n) in its length.
  void Encode(std::string_view piece, std::vector<int32_t>& out) const;

  const std::vector<std::string>& tokens() const { return tokens_; }

 private:
  static constexpr int32_t kNone = INT32_MAX;
  int32_t Rank(std::string_view bytes) const;

  std::vector<std::string> tokens_;
  std::unordered_map<std::string_view, int32_t> ranks_;  // views of tokens_
  size_t longest_ = 0;
};

}  // namespace legoai::data
