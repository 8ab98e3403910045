#include "core/data/byte_pair_encoding.h"

#include <algorithm>
#include <functional>
#include <queue>
#include <utility>

namespace legoai::data {
namespace {

// The parts of a piece as a linked list over the positions of their first bytes.
struct Parts {
  explicit Parts(size_t size) : next(size), previous(size), alive(size, true) {
    for (size_t i = 0; i < size; ++i) next[i] = i + 1, previous[i] = i - 1;
  }
  size_t EndOfPair(size_t first) const { return next[next[first]]; }
  bool HasPair(size_t first) const { return next[first] < next.size(); }
  void JoinPair(size_t first) {
    const size_t second = next[first];
    alive[second] = false;
    next[first] = next[second];
    if (next[first] < next.size()) previous[next[first]] = first;
  }
  std::vector<size_t> next, previous;
  std::vector<bool> alive;
};

// Waiting to be joined; lowest rank first, then leftmost. Stale once one of its two parts has been joined with another.
struct Candidate {
  int32_t rank;
  size_t first, end;
  bool operator>(const Candidate& other) const { return std::pair(rank, first) > std::pair(other.rank, other.first); }
};

}  // namespace

BytePairEncoding::BytePairEncoding(std::vector<std::string> tokens) : tokens_(std::move(tokens)) {
  ranks_.reserve(tokens_.size());
  for (size_t rank = 0; rank < tokens_.size(); ++rank) {
    ranks_.emplace(tokens_[rank], static_cast<int32_t>(rank));
    longest_ = std::max(longest_, tokens_[rank].size());
  }
}

int32_t BytePairEncoding::Rank(std::string_view bytes) const {
  if (bytes.size() > longest_) return kNone;
  const auto found = ranks_.find(bytes);
  return found == ranks_.end() ? kNone : found->second;
}

void BytePairEncoding::Encode(std::string_view piece, std::vector<int32_t>& out) const {
  if (piece.empty()) return;
  if (const int32_t whole = Rank(piece); whole != kNone) {  // most pieces are words that are tokens
    out.push_back(whole);
    return;
  }
  Parts parts(piece.size());
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> waiting;
  const auto consider = [&](size_t first) {
    if (!parts.HasPair(first)) return;
    const size_t end = parts.EndOfPair(first);
    const int32_t rank = Rank(piece.substr(first, end - first));
    if (rank != kNone) waiting.push({rank, first, end});
  };
  for (size_t i = 0; i + 1 < piece.size(); ++i) consider(i);
  while (!waiting.empty()) {
    const Candidate best = waiting.top();
    waiting.pop();
    if (!parts.alive[best.first] || !parts.HasPair(best.first) || parts.EndOfPair(best.first) != best.end) continue;
    parts.JoinPair(best.first);
    consider(best.first);
    if (best.first > 0) consider(parts.previous[best.first]);
  }
  for (size_t i = 0; i < piece.size(); i = parts.next[i]) out.push_back(Rank(piece.substr(i, parts.next[i] - i)));
}

}  // namespace legoai::data
