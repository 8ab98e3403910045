#include "core/data/byte_pair_encoding.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <utility>

namespace legoai::data {
namespace {

std::vector<std::string> Bytes() {
  std::vector<std::string> tokens;
  for (int i = 0; i < 256; ++i) tokens.emplace_back(1, static_cast<char>(i));
  return tokens;
}

std::vector<int32_t> Join(const BytePairEncoding& encoding, const std::string& piece) {
  std::vector<int32_t> symbols;
  for (const char byte : piece) symbols.push_back(static_cast<unsigned char>(byte));
  encoding.Join(&symbols);
  return symbols;
}

// The definition, word by word: look at all neighbours, join the first of the lowest rank, again. `join(left, right)` gives rank
// and id of what two become; a rank of INT32_MAX is none.
template <class JoinTwo>
std::vector<int32_t> BruteForce(const std::string& piece, const JoinTwo& join) {
  std::vector<int32_t> parts;
  for (const char byte : piece) parts.push_back(static_cast<unsigned char>(byte));
  while (true) {
    std::pair<int32_t, int32_t> best = {INT32_MAX, 0};
    size_t at = 0;
    for (size_t i = 0; i + 1 < parts.size(); ++i) {
      const std::pair<int32_t, int32_t> one = join(parts[i], parts[i + 1]);
      if (one.first < best.first) best = one, at = i;
    }
    if (best.first == INT32_MAX) return parts;
    parts[at] = best.second;
    parts.erase(parts.begin() + at + 1);
  }
}

std::string RandomPiece(std::mt19937& random) {
  std::string piece(1 + random() % 40, ' ');
  for (char& c : piece) c = "abcx"[random() % 4];
  return piece;
}

// Tokens joined from earlier ones.
std::vector<std::string> RandomTokens(std::mt19937& random) {
  std::vector<std::string> tokens = Bytes(), made = {"a", "b", "c"};
  for (int i = 0; i < 12; ++i) {
    const std::string token = made[random() % made.size()] + made[random() % made.size()];
    if (std::find(tokens.begin(), tokens.end(), token) != tokens.end()) continue;
    tokens.push_back(token);
    made.push_back(token);
  }
  return tokens;
}

TEST(BytePairEncodingTest, RanksAgreeWithTheDefinition) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  for (int round = 0; round < 300; ++round) {
    const std::vector<std::string> tokens = RandomTokens(random);
    const BytePairEncoding encoding = BytePairEncoding::OfRanks(tokens);
    const std::string piece = RandomPiece(random);
    ASSERT_EQ(Join(encoding, piece), BruteForce(piece, [&](int32_t left, int32_t right) {
                const auto found = std::find(tokens.begin(), tokens.end(), tokens[left] + tokens[right]);
                const auto id = static_cast<int32_t>(found - tokens.begin());
                return std::pair(found == tokens.end() ? INT32_MAX : id, id);
              }))
        << piece;
  }
}

// In any order, and not all that could be.
TEST(BytePairEncodingTest, MergesAgreeWithTheDefinition) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  for (int round = 0; round < 300; ++round) {
    std::vector<Merge> merges = AllMerges(RandomTokens(random));
    std::shuffle(merges.begin(), merges.end(), random);
    merges.resize(merges.size() - merges.size() / 4);
    const std::string piece = RandomPiece(random);
    ASSERT_EQ(Join(BytePairEncoding(merges), piece), BruteForce(piece, [&](int32_t left, int32_t right) {
                const auto found = std::find_if(merges.begin(), merges.end(),
                                                [&](const Merge& one) { return one.left == left && one.right == right; });
                if (found == merges.end()) return std::pair(INT32_MAX, 0);
                return std::pair(static_cast<int32_t>(found - merges.begin()), found->made);
              }))
        << piece;
  }
}

TEST(BytePairEncodingTest, NothingIsJoinedOfOneOrNone) {
  const BytePairEncoding encoding = BytePairEncoding::OfRanks(Bytes());
  EXPECT_TRUE(Join(encoding, "").empty());
  EXPECT_EQ(Join(encoding, "a"), std::vector<int32_t>{'a'});
  EXPECT_EQ(Join(encoding, "ab"), (std::vector<int32_t>{'a', 'b'}));
}

// A piece of a million bytes: quadratic work would not end in time.
TEST(BytePairEncodingTest, LongPiece) {
  std::vector<std::string> tokens = Bytes();
  for (int length = 2; length <= 64; length *= 2) tokens.emplace_back(length, 'a');
  EXPECT_EQ(Join(BytePairEncoding::OfRanks(tokens), std::string(1 << 20, 'a')), std::vector<int32_t>((1 << 20) / 64, 256 + 5));
}

}  // namespace
}  // namespace legoai::data
