#include "core/data/byte_pair_encoding.h"

#include <algorithm>
#include <functional>
#include <queue>
#include <string_view>
#include <utility>

namespace legoai::data {
namespace {

uint64_t Key(int32_t left, int32_t right) { return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right); }

// The symbols of a piece as a linked list over their first places.
struct Parts {
  explicit Parts(size_t size) : next(size), previous(size), alive(size, true) {
    for (size_t i = 0; i < size; ++i) next[i] = i + 1, previous[i] = i - 1;
  }
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

// Waiting to be joined; lowest rank first, then leftmost. Stale once one of its two parts has become another.
struct Candidate {
  int32_t rank;
  size_t first;
  int32_t left, right, made;
  bool operator>(const Candidate& other) const { return std::pair(rank, first) > std::pair(other.rank, other.first); }
};

}  // namespace

std::vector<Merge> AllMerges(const std::vector<std::string>& tokens) {
  std::unordered_map<std::string_view, int32_t> ids;
  ids.reserve(tokens.size());
  for (size_t id = 0; id < tokens.size(); ++id) ids.emplace(tokens[id], static_cast<int32_t>(id));
  std::vector<Merge> merges;
  for (size_t id = 0; id < tokens.size(); ++id) {
    const std::string_view token = tokens[id];
    const size_t first = merges.size();
    for (size_t at = 1; at < token.size(); ++at) {
      const auto left = ids.find(token.substr(0, at)), right = ids.find(token.substr(at));
      if (left != ids.end() && right != ids.end()) merges.push_back({left->second, right->second, static_cast<int32_t>(id)});
    }
    std::sort(merges.begin() + first, merges.end(),
              [](const Merge& a, const Merge& b) { return std::pair(a.left, a.right) < std::pair(b.left, b.right); });
  }
  return merges;
}

BytePairEncoding::BytePairEncoding(const std::vector<Merge>& merges) {
  joined_.reserve(merges.size());
  // A pair that is listed twice counts where it stands last, as in tokenizers.
  for (size_t i = 0; i < merges.size(); ++i)
    joined_.insert_or_assign(Key(merges[i].left, merges[i].right), Joined{static_cast<int32_t>(i), merges[i].made});
}

BytePairEncoding BytePairEncoding::OfRanks(const std::vector<std::string>& tokens) {
  BytePairEncoding encoding;
  const std::vector<Merge> merges = AllMerges(tokens);
  encoding.joined_.reserve(merges.size());
  for (const Merge& merge : merges) encoding.joined_.emplace(Key(merge.left, merge.right), Joined{merge.made, merge.made});
  return encoding;
}

const BytePairEncoding::Joined* BytePairEncoding::Find(int32_t left, int32_t right) const {
  const auto found = joined_.find(Key(left, right));
  return found == joined_.end() ? nullptr : &found->second;
}

void BytePairEncoding::Join(std::vector<int32_t>* symbols) const {
  std::vector<int32_t>& ids = *symbols;
  if (ids.size() < 2) return;
  Parts parts(ids.size());
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> waiting;
  const auto consider = [&](size_t first) {
    if (!parts.HasPair(first)) return;
    const int32_t left = ids[first], right = ids[parts.next[first]];
    if (const Joined* joined = Find(left, right)) waiting.push({joined->rank, first, left, right, joined->made});
  };
  for (size_t i = 0; i + 1 < ids.size(); ++i) consider(i);
  while (!waiting.empty()) {
    const Candidate best = waiting.top();
    waiting.pop();
    if (!parts.alive[best.first] || ids[best.first] != best.left || !parts.HasPair(best.first) ||
        ids[parts.next[best.first]] != best.right)
      continue;
    parts.JoinPair(best.first);
    ids[best.first] = best.made;
    consider(best.first);
    if (best.first > 0) consider(parts.previous[best.first]);
  }
  size_t kept = 0;
  for (size_t i = 0; i < parts.next.size(); i = parts.next[i]) ids[kept++] = ids[i];
  ids.resize(kept);
}

}  // namespace legoai::data
